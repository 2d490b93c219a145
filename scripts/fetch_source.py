"""source.json: what an engine is made from. Mode `index`: the released wheel, by version and digest."""

from pinproof import cli, fetch, records, wheel


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    engine = place.arm.engine
    task.say(f"taking {engine.distribution} {engine.version} from the package index")
    file = fetch.fetch(engine, place.folder / "source", log=task.log)
    body = {"mode": engine.mode, "key": place.key, "wheel": wheel.inspect(file).as_record()}
    records.write(place.source, "source", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="engine")
