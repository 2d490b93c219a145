"""pin.json: the declared identity of every arm, from the blocks of their pin files."""

from pinproof import cli, pin, records


def main(task: cli.Task) -> None:
    arms = {
        name: {"file": arm.pin, **pin.read_pin(task.layout.root / arm.pin).as_record()}
        for name, arm in task.layout.case.arms.items()
    }
    records.write(task.layout.pin, "pin", {"arms": arms}, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main)
