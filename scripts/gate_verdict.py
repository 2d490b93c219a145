"""The verdict as an exit status: 0 for HOLD, 10 for REVERT, 20 for UNDECIDED."""

import sys

from pinproof import ci, cli, records
from pinproof.artifacts import Artifacts


def main(task: cli.Task) -> None:
    verdict = records.read(task.layout.verdict, "verdict")
    status = ci.STATUS[verdict["verdict"]]
    records.write_text(Artifacts(task.layout).status, f"{status}\n")
    task.say(f"{verdict['verdict']}: exit status {status}")
    if status:
        sys.exit(status)


if __name__ == "__main__":
    cli.run(main)
