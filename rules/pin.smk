rule read_pin:
    input:
        [LAYOUT.pin_file(arm) for arm in CASE.arms],
    output:
        LAYOUT.pin,
    log:
        LOGS / "read_pin.log",
    params:
        run=command("read_pin"),
        pins=records.canonical({name: arm.pin for name, arm in CASE.arms.items()}),
    shell:
        "{params.run} --log {log:q}"


# A preflight that was blocked is looked at again at every call: what blocked may have gone.
rule run_preflight:
    input:
        LAYOUT.pin,
        [LAYOUT.engine(arm).metadata for arm in CASE.arms if LAYOUT.has_origin(arm)],
    output:
        LAYOUT.preflight,
    log:
        LOGS / "run_preflight.log",
    params:
        run=command("run_preflight"),
        blocked_at=preflight_blocked_at(LAYOUT.preflight),
        compare=records.canonical(
            {name: arm.compare for name, arm in CASE.arms.items()}
        ),
    shell:
        "{params.run} --log {log:q}"
