"""Whether an archive's verdict follows from what lies beside it: no engine, no network, nothing of the case needed."""

import argparse
import sys
from pathlib import Path

from pinproof import cli, replay
from pinproof.reasons import Reason, Refusal


def main(task: cli.Task) -> None:
    if OPTIONS.archive is None:
        raise Refusal(Reason.CASE_INVALID, "which archive? --config archive=PATH", key="archive")
    found = replay.verify(OPTIONS.archive)
    task.say(
        f"identical: {found.case} is {found.verdict}; {found.files} files, {found.size} bytes unpacked, "
        f"{found.rows} rows and {found.legs} legs judged again, {found.scrubbed} files scrubbed"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--archive", type=Path)
    OPTIONS, sys.argv[1:] = parser.parse_known_args()
    cli.run(main)
