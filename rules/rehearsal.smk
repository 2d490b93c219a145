# Without an output it is done at every call: it tells whether a lease taken now could end in a verdict.
rule rehearsal:
    log:
        LOGS / "rehearse.log",
    params:
        run=command("rehearse"),
        cores=lambda wildcards, output: workflow.cores,
        fault=f"--fault {shlex.quote(str(FAULT))}" if FAULT else "",
    shell:
        "{params.run} --log {log:q} --cores {params.cores} {params.fault}"
