"""report.html: Snakemake's report of the verdict's page and figures, one file that needs no network."""

from pinproof import cli, report


def main(task: cli.Task) -> None:
    report.make(task.layout, task.layout.report, task.log)
    task.say(f"{task.layout.report}: {task.layout.report.stat().st_size} bytes")


if __name__ == "__main__":
    cli.run(main)
