"""metadata.json: what the engine will say of itself, known before it is built or installed."""

from pinproof import cli, records, wheel


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    source = records.read(place.source, "source")["wheel"]
    relabel = place.arm.engine.relabel
    name, version = source["name"], source["version"]
    if relabel:
        name, version = relabel.name, wheel.with_local(version, relabel.local)
    body = {
        "name": name,
        "version": version,
        "module_version": source["module_version"],
        "commit": source["commit_id"],
        "requires_dist": source["requires_dist"],
        "released_as": {"name": source["name"], "version": source["version"], "sha256": source["sha256"]},
    }
    records.write(place.metadata, "metadata", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="engine")
