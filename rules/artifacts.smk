rule write_ci:
    input:
        LAYOUT.verdict,
    output:
        LAYOUT.junit,
        LAYOUT.comment,
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
        LAYOUT.junit,
        LAYOUT.comment,
    log:
        LOGS / "gate.log",
    params:
        run=command("gate_verdict"),
    shell:
        "{params.run} --log {log:q}"


# What leaves the machine. The archive is made of every file behind the verdict, and verified as it is made.
rule write_archive:
    input:
        LAYOUT.verdict,
        LAYOUT.page,
        [file for place in ROWS.values() for file in (place.result, place.series)],
    output:
        LAYOUT.archive,
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
        archive=f"--archive {shlex.quote(str(ARCHIVE))}" if ARCHIVE else "",
    shell:
        "{params.run} --log {log:q} {params.archive}"
