# For a worker without a network. It needs the case and the locks, and nothing that was built or measured.
rule make_bundle:
    input:
        bundle.sources(LAYOUT),
    output:
        LAYOUT.bundle,
    log:
        LOGS / "make_bundle.log",
    params:
        run=command("make_bundle"),
        worker=records.canonical(CASE.worker and CASE.worker.model_dump()),
    shell:
        "{params.run} --log {log:q}"
