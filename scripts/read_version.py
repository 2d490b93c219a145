"""version.json: what the installed engine says of itself, each field by its own API, read from `/`."""

from pinproof import cli, records, version


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    task.say("reading versions and executing one op in the engine's own interpreter")
    body = version.read(place.python, log=task.log)
    read_by = body.pop(records.PROVENANCE, {})
    records.write(place.version, "version", body, provenance={**read_by, **cli.provenance()})


if __name__ == "__main__":
    cli.run(main, needs="engine")
