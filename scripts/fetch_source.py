"""source.json: what an engine is made from: a released wheel, or a private tree of its source."""

from pinproof import builds, cli, fetch, records, wheel
from pinproof.engines import BuiltEngine


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    body = {"mode": place.arm.engine.mode, "key": place.key}
    if isinstance(place.arm.engine, BuiltEngine):
        body |= builds.take(task.layout, place, task.say)
    else:
        file = fetch.take(place.arm.engine, task.layout.root, place.folder / "source", log=task.log, say=task.say)
        body |= {"wheel": wheel.inspect(file).as_record()}
    records.write(place.source, "source", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="engine")
