rule make_checkpoint:
    output:
        LAYOUT.store / "checkpoints/{checkpoint}.json",
    log:
        LAYOUT.store / "checkpoints/{checkpoint}.log",
    shell:
        "{SCRIPT}/make_checkpoint.py --case {CASE_FILE:q} --log {log:q} --checkpoint {wildcards.checkpoint}"
