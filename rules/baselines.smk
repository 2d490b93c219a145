# The pages are the user's own: one that changes is looked at again.
rule check_citations:
    input:
        [LAYOUT.named(file) for file in citations.cited_files(CASE, LAYOUT.root)],
        [LAYOUT.named(CASE.previous_pin)] if CASE.previous_pin else [],
    output:
        LAYOUT.citations,
    log:
        LOGS / "check_citations.log",
    params:
        run=command("check_citations"),
        baselines=records.canonical(
            [CASE.pages, CASE.tie_band, CASE.device.name]
            + [
                [
                    row.id,
                    row.published and row.published.model_dump(),
                    [list(found) for found in citations.baselines_of(row).items()],
                ]
                for row in CASE.rows
            ]
        ),
    shell:
        "{params.run} --log {log:q}"


# What was resolved is known from the environments; how a row was served, from its attempts.
rule check_discharges:
    input:
        [place.metadata for place in ENGINES.values()],
        [place.version for place in ENGINES.values()],
        [place.series for place in ROWS.values()],
    output:
        LAYOUT.discharges,
    log:
        LOGS / "check_discharges.log",
    params:
        run=command("check_discharges"),
        discharges=records.canonical([one.model_dump() for one in CASE.discharges]),
    shell:
        "{params.run} --log {log:q}"
