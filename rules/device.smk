# No lease is taken for what can be known without one: the gates come first.
rule read_device:
    input:
        ancient([LAYOUT.gate(arm) for arm in CASE.arms]),
    output:
        LAYOUT.device,
    log:
        LOGS / "read_device.log",
    resources:
        gpu=1,
    params:
        run=command("read_device"),
        declared=records.canonical(CASE.device.declared),
    shell:
        "{params.run} --log {log:q}"
