"""revert.patch: the change that would take the pin back; written, never applied."""

from pinproof import cli, patches, records
from pinproof.case import ORACLE
from pinproof.reasons import Reason, Refusal


def main(task: cli.Task) -> None:
    case, root = task.layout.case, task.layout.root
    if case.advance == "candidate":
        text = "the oracle is a candidate, so there is no advance to take back"
        raise Refusal(Reason.CASE_INVALID, text, file=task.layout.case_file, key="advance")
    previous = root / case.previous_pin if case.previous_pin else None
    records.write_text(task.layout.revert, patches.revert(root / case.arms[ORACLE].pin, previous))
    task.say(f"wrote {task.layout.revert}")


if __name__ == "__main__":
    cli.run(main)
