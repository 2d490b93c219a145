rule write_verdict:
    input:
        LAYOUT.pin,
        LAYOUT.device,
        [LAYOUT.gate(arm) for arm in CASE.arms],
        [place.version for place in ENGINES.values()],
        [LAYOUT.checkpoint(name) for name in CASE.checkpoints],
        [place.result for place in ROWS.values()],
        [LAYOUT.citations] if citations.wanted(CASE) else [],
        [LAYOUT.discharges] if CASE.discharges else [],
    output:
        LAYOUT.verdict,
    log:
        LOGS / "write_verdict.log",
    params:
        run=command("write_verdict"),
        question=records.canonical([CASE.question, CASE.advance]),
        not_owed=records.canonical([one.model_dump() for one in CASE.not_owed]),
    shell:
        "{params.run} --log {log:q}"


rule write_page:
    input:
        LAYOUT.verdict,
    output:
        LAYOUT.page,
    log:
        LOGS / "write_page.log",
    params:
        run=command("write_page"),
    shell:
        "{params.run} --log {log:q}"
