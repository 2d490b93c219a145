"""Whether an archive's verdict follows from what lies beside it: no engine, no network, nothing of the case needed."""

from pathlib import Path

from pinproof import attestation, cli, replay
from pinproof.reasons import Reason, Refusal


def main(task: cli.Task) -> None:
    if OPTIONS.archive is None:
        raise Refusal(Reason.CASE_INVALID, "which archive? --config archive=PATH", key="archive")
    if (OPTIONS.attestation is None) != (OPTIONS.key is None):
        raise Refusal(Reason.CASE_INVALID, "an attestation is checked with a public key: give both", key="key")
    found = replay.verify(OPTIONS.archive)
    task.say(
        f"identical: {found.case} is {found.verdict}; {found.files} files, {found.size} bytes unpacked, "
        f"{found.rows} rows and {found.legs} legs judged again, {found.scrubbed} files scrubbed"
    )
    if not found.page:
        task.say("verdict.md was written by another version of pinproof: it is unchanged, and was not compared")
    if OPTIONS.attestation is not None:
        signer = attestation.check(OPTIONS.archive, OPTIONS.attestation, OPTIONS.key)
        task.say(f"attested: signed by the key {signer}, and it states what the archive leads to")


if __name__ == "__main__":
    OPTIONS = cli.options(archive=Path, attestation=Path, key=Path)
    cli.run(main)
