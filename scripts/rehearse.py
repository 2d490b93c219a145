"""rehearsal.json: the whole workflow of a case on doubles, and whether it ended as it must."""

import argparse
import sys

from pinproof import cli, rehearsal


def main(task: cli.Task) -> None:
    fault = rehearsal.fault_of(OPTIONS.fault)
    outcome = rehearsal.rehearse(task.layout, fault, OPTIONS.cores, task.say)
    task.say(rehearsal.words(outcome, fault))
    rehearsal.record(task.layout, outcome, fault)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--fault")
    OPTIONS, sys.argv[1:] = parser.parse_known_args()
    cli.run(main)
