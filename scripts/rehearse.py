"""rehearsal.json: the whole workflow of a case on doubles, and whether it ended as it must."""

from pinproof import cli, rehearsal


def main(task: cli.Task) -> None:
    fault = rehearsal.fault_of(OPTIONS.fault)
    outcome = rehearsal.rehearse(task.layout, fault, OPTIONS.cores or 2, task.say)
    task.say(rehearsal.words(outcome, fault))
    rehearsal.record(task.layout, outcome, fault)


if __name__ == "__main__":
    OPTIONS = cli.options(cores=int, fault=str)
    cli.run(main)
