"""metadata.json: what the engine will say of itself, known before it is built or installed."""

from pinproof import builds, cli, records, wheel
from pinproof.engines import BuiltEngine
from pinproof.layout import EnginePlace


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    if isinstance(place.arm.engine, BuiltEngine):
        task.say("asking the build backend for its metadata, under the environment of the build")
        body = builds.metadata(task.layout, place, log=task.log)
    else:
        body = released(place)
    records.write(place.metadata, "metadata", body, provenance=cli.provenance())
    task.say(f"{body['name']} {body['version']}")


def released(place: EnginePlace) -> dict:
    """What a released wheel will say of itself once it is relabelled."""
    source = records.read(place.source, "source")["wheel"]
    relabel = place.arm.engine.relabel
    name, version = source["name"], source["version"]
    if relabel:
        name, version = relabel.name, wheel.with_local(version, relabel.local)
    return {
        "name": name,
        "version": version,
        "module_version": source["module_version"],
        "commit": source["commit_id"],
        "requires_dist": source["requires_dist"],
        "released_as": {"name": source["name"], "version": source["version"], "sha256": source["sha256"]},
    }


if __name__ == "__main__":
    cli.run(main, needs="engine")
