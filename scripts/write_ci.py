"""junit.xml and comment.md: the verdict for a CI and for a pull request."""

from pinproof import ci, cli, records
from pinproof.artifacts import Artifacts


def main(task: cli.Task) -> None:
    verdict = records.read(task.layout.verdict, "verdict")
    records.write_text(Artifacts(task.layout).junit, ci.junit(verdict))
    records.write_text(Artifacts(task.layout).comment, ci.comment(verdict))


if __name__ == "__main__":
    cli.run(main)
