"""preflight.json: what blocks, what is unknown and what is ready, before anything slow."""

from pinproof import cli, corrections, preflight, records


def main(task: cli.Task) -> None:
    findings = preflight.look(task.layout)
    body = preflight.body(findings)
    records.write(task.layout.preflight, "preflight", body, provenance=cli.provenance())
    for found in findings:
        task.say(found.words)
    for name in filter(task.layout.has_origin, task.layout.case.arms):
        if file := corrections.write(task.layout, name):
            task.say(f"wrote {file}: what the block of {name} would have to say; it must be a change of its own")


if __name__ == "__main__":
    cli.run(main)
