"""gate.json: field by field, what the arm's pin declares against what the installed engine reports."""

from pinproof import cli, corrections, gate, pin, records


def main(task: cli.Task) -> None:
    arm = task.layout.case.arms[task.id]
    place = task.layout.engine(task.id)
    version = records.read(place.version, "version")
    declared = pin.read_pin(task.layout.root / arm.pin)
    rows = gate.compare(declared, version, arm.compare, gate.Build.of(place))
    body = {
        "arm": task.id,
        "engine": place.folder.name,
        "version_digest": records.content_digest(version),
        "wheel_sha256": records.read(place.wheel, "wheel")["wheel"]["sha256"],
        **gate.as_record(rows, arm.engine.mode),
    }
    records.write(task.layout.gate(task.id), "gate", body, provenance=cli.provenance())
    task.say(f"identity: {body['outcome']}")
    if file := corrections.write(task.layout, task.id):
        task.say(f"wrote {file}: what the block would have to say; it must be a change of its own")


if __name__ == "__main__":
    cli.run(main, needs="arm")
