"""verdict.json: HOLD, REVERT or UNDECIDED; a pure function of the files that it names by digest."""

from pinproof import cli, records, trend, verdict


def main(task: cli.Task) -> None:
    body = verdict.of(task.layout)
    written = records.write(task.layout.verdict, "verdict", body, provenance=cli.provenance())
    trend.keep(task.layout, written)


if __name__ == "__main__":
    cli.run(main)
