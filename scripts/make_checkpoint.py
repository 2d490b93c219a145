"""The checkpoint's record: the files that were made or found, their digests, the model's limits."""

from pinproof import checkpoint, cli, records, synthesis


def main(task: cli.Task) -> None:
    name = next(name for name in task.layout.case.checkpoints if task.layout.checkpoint(name).stem == task.id)
    declared = task.layout.case.checkpoints[name]
    folder = task.layout.checkpoint(name).with_suffix("")
    made = synthesis.synthesise(synthesis.Spec(**declared.model_dump(exclude={"kind"})), folder)
    facts = checkpoint.describe(folder, declared=made, kind=declared.kind)
    body = {"key": task.layout.checkpoint_key(name), **facts.as_record()}
    records.write(task.layout.checkpoint(name), "checkpoint", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="checkpoint")
