"""report.html: Snakemake's report of the verdict's page and figures, one file that needs no network."""

from pinproof import cli, report
from pinproof.artifacts import Artifacts


def main(task: cli.Task) -> None:
    target = Artifacts(task.layout).report
    report.make(task.layout, target, task.log)
    task.say(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    cli.run(main)
