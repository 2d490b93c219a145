rule write_ci:
    input:
        LAYOUT.verdict,
    output:
        ARTIFACTS.junit,
        ARTIFACTS.comment,
    log:
        LOGS / "write_ci.log",
    params:
        run=command("write_ci"),
    shell:
        "{params.run} --log {log:q}"


# It fails unless the pin holds, so that no call which ends well says HOLD by mistake; onerror tells which.
rule gate:
    input:
        LAYOUT.verdict,
        ARTIFACTS.junit,
        ARTIFACTS.comment,
    log:
        LOGS / "gate.log",
    params:
        run=command("gate_verdict"),
    shell:
        "{params.run} --log {log:q}"


# Done at every call: which verdicts there are is not known before.
rule history:
    log:
        LAYOUT.results / "history.log",
    params:
        run=command("write_history"),
        given=given("verdicts"),
    shell:
        "{params.run} --log {log:q} {params.given}"


rule draw_figures:
    input:
        LAYOUT.verdict,
    output:
        [
            report(
                path,
                caption=f"captions/{kind}.rst",
                category="Rows",
                subcategory=row,
                labels={"row": row, "figure": report_pages.TITLES[kind]},
            )
            for kind, files in report_pages.drawn(LAYOUT).items()
            for row, path in files
        ],
    log:
        LOGS / "draw_figures.log",
    params:
        run=command("draw_figures"),
    shell:
        "{params.run} --log {log:q}"


rule write_webpage:
    input:
        LAYOUT.page,
    output:
        report(ARTIFACTS.webpage, caption="captions/page.rst", category="Verdict"),
    log:
        LOGS / "write_webpage.log",
    params:
        run=command("write_webpage"),
    shell:
        "{params.run} --log {log:q}"


# What the report is of; a target of its own, for the call of Snakemake that writes it.
rule figures:
    input:
        ARTIFACTS.webpage,
        rules.draw_figures.output,


rule write_report:
    input:
        ARTIFACTS.webpage,
        rules.draw_figures.output,
    output:
        ARTIFACTS.report,
    log:
        LOGS / "write_report.log",
    params:
        run=command("write_report"),
    shell:
        "{params.run} --log {log:q}"


# What leaves the machine. The archive is made of every file behind the verdict, and verified as it is made.
rule write_archive:
    input:
        LAYOUT.verdict,
        LAYOUT.page,
        [file for place in ROWS.values() for file in (place.result, place.series)],
    output:
        ARTIFACTS.archive,
    log:
        LOGS / "write_archive.log",
    params:
        run=command("write_archive"),
    shell:
        "{params.run} --log {log:q}"


# Without an output it is done at every call, and it reads nothing of the case.
rule verify:
    log:
        LOGS / "verify_archive.log",
    params:
        run=command("verify_archive"),
        given=given("archive", "attestation", "key"),
    shell:
        "{params.run} --log {log:q} {params.given}"


# Without an output it signs at every call: what is signed with is not known to the workflow.
rule attest:
    input:
        ARTIFACTS.archive,
    log:
        LOGS / "attest.log",
    params:
        run=command("write_attestation"),
        given=given("key"),
    shell:
        "{params.run} --log {log:q} {params.given}"
