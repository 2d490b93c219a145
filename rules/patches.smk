# Written, never applied: a person takes a change of the pin into the repository.
rule write_correction:
    input:
        [LAYOUT.pin_file(arm) for arm in CASE.arms],
        ancient([place.metadata for place in ENGINES.values()]),
    output:
        LAYOUT.correction,
    log:
        LOGS / "write_correction.log",
    params:
        run=command("write_correction"),
        read=[place.version.exists() for place in ENGINES.values()],
    shell:
        "{params.run} --log {log:q}"


rule write_revert:
    input:
        [LAYOUT.pin_file(arm) for arm in CASE.arms],
        [LAYOUT.named(CASE.previous_pin)] if CASE.previous_pin else [],
    output:
        LAYOUT.revert,
    log:
        LOGS / "write_revert.log",
    params:
        run=command("write_revert"),
        advance=CASE.advance,
    shell:
        "{params.run} --log {log:q}"
