"""citations.json: whether the figures that the baselines name stand where they say, and what their records lack."""

from pinproof import citations, cli, pin, records


def main(task: cli.Task) -> None:
    case, root = task.layout.case, task.layout.root
    before = pin.read_pin(root / case.previous_pin) if case.previous_pin else None
    body = citations.body(case, root, before)
    records.write(task.layout.citations, "citations", body, provenance=cli.provenance())
    for one in body["citations"]:
        task.say(f"{one['row']}: {one['file']}:{one['line']}: {one['state']} {one['text']}".rstrip())


if __name__ == "__main__":
    cli.run(main)
