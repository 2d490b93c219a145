rule write_verdict:
    input:
        LAYOUT.pin,
        LAYOUT.device,
        [LAYOUT.gate(arm) for arm in CASE.arms],
        [place.version for place in ENGINES.values()],
        [LAYOUT.checkpoint(name) for name in CASE.checkpoints],
        [place.result for place in ROWS.values()],
    output:
        LAYOUT.verdict,
    log:
        LOGS / "write_verdict.log",
    params:
        question=records.canonical([CASE.question, CASE.advance]),
    shell:
        "{SCRIPT}/write_verdict.py --case {CASE_FILE:q} --log {log:q}"


rule write_page:
    input:
        LAYOUT.verdict,
    output:
        LAYOUT.page,
    log:
        LOGS / "write_page.log",
    shell:
        "{SCRIPT}/write_page.py --case {CASE_FILE:q} --log {log:q}"
