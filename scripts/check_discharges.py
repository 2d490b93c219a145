"""discharges.json: whether the case's arguments hold on what was resolved and how every row was served."""

from pinproof import cli, discharges, records


def main(task: cli.Task) -> None:
    judged = discharges.judge(task.layout)
    records.write(task.layout.discharges, "discharges", discharges.body(judged), provenance=cli.provenance())
    for one in judged:
        task.say(f"{one.id}: {one.state}")


if __name__ == "__main__":
    cli.run(main)
