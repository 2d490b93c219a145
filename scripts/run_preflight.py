"""preflight.json: what blocks, what is unknown and what is ready, before anything slow."""

from pinproof import cli, preflight, records


def main(task: cli.Task) -> None:
    findings = preflight.look(task.layout)
    body = preflight.body(findings)
    records.write(task.layout.preflight, "preflight", body, provenance=cli.provenance())
    for found in findings:
        task.say(found.words)


if __name__ == "__main__":
    cli.run(main)
