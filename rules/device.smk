# No lease is taken for what can be known without one: the gates come first.
rule read_device:
    input:
        ancient([LAYOUT.gate(arm) for arm in CASE.arms]),
    output:
        LAYOUT.device,
    log:
        LOGS / "read_device.log",
    params:
        declared=records.canonical(CASE.device.declared),
    resources:
        gpu=1,
    shell:
        "{SCRIPT}/read_device.py --case {CASE_FILE:q} --log {log:q}"
