# An engine lies under a digest of what its bytes depend on, so nothing else is tracked here: what
# would rebuild it gives it another path.


rule fetch_source:
    output:
        LAYOUT.store / "engines/{engine}/source.json",
    log:
        LAYOUT.store / "engines/{engine}/logs/fetch_source.log",
    params:
        run=command("fetch_source"),
    shell:
        "{params.run} --log {log:q} --engine {wildcards.engine}"


rule read_metadata:
    input:
        LAYOUT.store / "engines/{engine}/source.json",
    output:
        LAYOUT.store / "engines/{engine}/metadata.json",
    log:
        LAYOUT.store / "engines/{engine}/logs/read_metadata.log",
    params:
        run=command("read_metadata"),
    shell:
        "{params.run} --log {log:q} --engine {wildcards.engine}"


# The preflight comes first in time and changes nothing about the wheel: hence ancient. A wheel that
# is there is nobody's output: the preflight of another case in the same folder, or none yet in
# another checkout, would be another set of inputs, and would build it again.
rule make_wheel:
    input:
        ancient(LAYOUT.store / "engines/{engine}/source.json"),
        ancient(LAYOUT.store / "engines/{engine}/metadata.json"),
        ancient(LAYOUT.preflight),
    output:
        LAYOUT.store / "engines/{engine}/wheel.json",
    log:
        LAYOUT.store / "engines/{engine}/logs/make_wheel.log",
    wildcard_constraints:
        engine="|".join(name for name, place in ENGINES.items() if not place.has_wheel)
        or "(?!)",
    params:
        run=command("make_wheel"),
    shell:
        "{params.run} --log {log:q} --engine {wildcards.engine}"


rule make_env:
    input:
        ancient(LAYOUT.store / "engines/{engine}/wheel.json"),
    output:
        LAYOUT.store / "engines/{engine}/env/pinproof.json",
    log:
        LAYOUT.store / "engines/{engine}/logs/make_env.log",
    params:
        run=command("make_env"),
    shell:
        "{params.run} --log {log:q} --engine {wildcards.engine}"


rule read_version:
    input:
        LAYOUT.store / "engines/{engine}/env/pinproof.json",
    output:
        LAYOUT.store / "engines/{engine}/version.json",
    log:
        LAYOUT.store / "engines/{engine}/logs/read_version.log",
    params:
        run=command("read_version"),
    shell:
        "{params.run} --log {log:q} --engine {wildcards.engine}"


# It depends on the preflight so that a change of what is compared is seen behind make_wheel's ancient
# inputs (snakemake#4166).
rule gate_arm:
    input:
        LAYOUT.pin,
        LAYOUT.preflight,
        lambda wildcards: LAYOUT.engine(wildcards.arm).version,
    output:
        LAYOUT.folder / "arms/{arm}/gate.json",
    log:
        LOGS / "gate_arm-{arm}.log",
    params:
        run=command("gate_arm"),
        engine=lambda wildcards: LAYOUT.engine(wildcards.arm).folder.name,
        compare=lambda wildcards: records.canonical(CASE.arms[wildcards.arm].compare),
    shell:
        "{params.run} --log {log:q} --arm {wildcards.arm}"
