"""The row's result: what its legs say under the plan that the case states now."""

from pinproof import cli, records, result


def main(task: cli.Task) -> None:
    body = result.of(task.layout, task.id)
    records.write(task.layout.row(task.id).result, "row", body, provenance=cli.provenance())
    task.say(f"{task.id}: {body['outcome']}")


if __name__ == "__main__":
    cli.run(main, needs="row")
