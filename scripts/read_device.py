"""device.json: what the device is and what it lets us do, read in the first seconds of a lease."""

from pinproof import cli, device, records


def main(task: cli.Task) -> None:
    declared = task.layout.case.device.declared
    facts = device.identify(declared["kind"])
    device.require(declared, facts)
    task.say(f"device: {facts.identity['name']}")
    records.write(task.layout.device, "device", facts.as_record(), provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main)
