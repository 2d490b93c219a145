"""attestation.json: a signed in-toto statement of what was tested and how it ended, made from the archive."""

import argparse
import sys
from pathlib import Path

from pinproof import attestation, cli
from pinproof.artifacts import Artifacts
from pinproof.reasons import Reason, Refusal


def main(task: cli.Task) -> None:
    if OPTIONS.key is None:
        raise Refusal(Reason.CASE_INVALID, "which private key? --config key=PATH (PEM)", key="key")
    made = attestation.sign(Artifacts(task.layout).archive, OPTIONS.key, Artifacts(task.layout).attestation)
    task.say(f"{Artifacts(task.layout).attestation}: {made['predicate']['result']}, {len(made['subject'])} subjects")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--key", type=Path)
    OPTIONS, sys.argv[1:] = parser.parse_known_args()
    cli.run(main)
