"""attestation.json: a signed in-toto statement of what was tested and how it ended, made from the archive."""

from pathlib import Path

from pinproof import attestation, cli
from pinproof.artifacts import Artifacts
from pinproof.reasons import Reason, Refusal


def main(task: cli.Task) -> None:
    if OPTIONS.key is None:
        raise Refusal(Reason.CASE_INVALID, "which private key? --config key=PATH (PEM)", key="key")
    artifacts = Artifacts(task.layout)
    made = attestation.sign(artifacts.archive, OPTIONS.key, artifacts.attestation)
    task.say(f"{artifacts.attestation}: {made['predicate']['result']}, {len(made['subject'])} subjects")


if __name__ == "__main__":
    OPTIONS = cli.options(key=Path)
    cli.run(main)
