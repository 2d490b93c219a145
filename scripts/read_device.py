"""device.json: what the device is and what it lets us do, read in the first seconds of a lease."""

from pinproof import cli, device, lease, nvml, progress, records


def main(task: cli.Task) -> None:
    declared = task.layout.case.device.declared
    case = task.layout.case
    who = lease.Who(case=case.case, row="device")
    with lease.granted(case.lease, lease.device_lock(declared["kind"]), who, progress.waiting(task.say)):
        facts = device.identify(declared["kind"], gpu=declared.get("uuid"))
    device.require(declared, facts)
    task.say(f"device: {facts.identity['name']}")
    body = facts.as_record()
    if facts.gpu is not None:  # a probe that reads: nothing is tried, and nothing is set
        body["may_lock_clocks"] = nvml.may_lock_clocks()
    records.write(task.layout.device, "device", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, on_device=True)
