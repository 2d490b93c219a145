"""verdict.html: the verdict's page for the report, and for whoever has a browser at hand."""

from pinproof import cli, records, webpage
from pinproof.artifacts import Artifacts


def main(task: cli.Task) -> None:
    text = task.layout.page.read_text(encoding="utf-8")
    records.write_text(Artifacts(task.layout).webpage, webpage.of(text))


if __name__ == "__main__":
    cli.run(main)
