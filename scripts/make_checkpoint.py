"""The checkpoint's record: the files that were made or found, their digests, the model's limits."""

from pinproof import cli, records, weights


def main(task: cli.Task) -> None:
    name = next(name for name in task.layout.case.checkpoints if task.layout.checkpoint(name).stem == task.id)
    facts = weights.describe(task.layout, name)
    body = {"key": task.layout.checkpoint_key(name), **facts.as_record()}
    records.write(task.layout.checkpoint(name), "checkpoint", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="checkpoint")
