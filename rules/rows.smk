# What a row measured lies under a digest of what was measured. Its inputs are only waited for: an
# environment that is made again, or a record that is read again, does not take a leg anew.
# A failed attempt is a result; the count of them makes the next call try again.
rule measure_row:
    input:
        lambda wildcards: waited_for(
            [LAYOUT.gate(arm) for arm in CASE.arms], wildcards.row
        ),
        ancient([place.env_marker for place in ENGINES.values()]),
        ancient(LAYOUT.device),
        checkpoint=lambda wildcards: ancient(
            LAYOUT.checkpoint(CASE.row(wildcards.row).checkpoint)
        ),
    output:
        LAYOUT.folder / "rows/{row}/{measured}/series.json",
    log:
        LOGS / "measure_row-{row}-{measured}.log",
    resources:
        gpu=1,
    params:
        run=command("measure_row"),
        failed_attempts=lambda wildcards: series.failed_attempts(ROWS[wildcards.row]),
        asked_for=lambda wildcards: series.asked_for(LAYOUT, wildcards.row),
    shell:
        "{params.run} --log {log:q} --row {wildcards.row}"


# Tolerances and looks are judged here, so that a changed one re-decides without a leg. It takes a
# moment, so it is done again with every gate: behind the ancient inputs of measure_row a change of
# the plan would go unseen in a call that runs a gate (snakemake#4166).
rule decide_row:
    input:
        lambda wildcards: ROWS[wildcards.row].series,
        [LAYOUT.gate(arm) for arm in CASE.arms],
        LAYOUT.device,
    output:
        LAYOUT.folder / "rows/{row}.json",
    log:
        LOGS / "decide_row-{row}.log",
    params:
        run=command("decide_row"),
        plan=lambda wildcards: records.canonical(plan.body(CASE, ROWS[wildcards.row])),
    shell:
        "{params.run} --log {log:q} --row {wildcards.row}"
