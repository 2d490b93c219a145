rule make_checkpoint:
    output:
        LAYOUT.store / "checkpoints/{checkpoint}.json",
    log:
        LAYOUT.store / "checkpoints/{checkpoint}.log",
    params:
        run=command("make_checkpoint"),
    shell:
        "{params.run} --log {log:q} --checkpoint {wildcards.checkpoint}"
