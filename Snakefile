from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")


report: "rules/captions/workflow.rst"


# Only with --sdm apptainer: what a machine needs before `make`, as an image.
container: "docker://docker.io/library/python:3.11-bookworm"


# A case given with --configfile stands alone; merged into the default one it would inherit its arms.
if "case" not in config:

    configfile: str(Path(workflow.basedir) / "config" / "config.yaml")


include: "rules/common.smk"
include: "rules/pin.smk"
include: "rules/engine.smk"
include: "rules/checkpoint.smk"
include: "rules/baselines.smk"
include: "rules/device.smk"
include: "rules/rows.smk"
include: "rules/verdict.smk"
include: "rules/patches.smk"
include: "rules/artifacts.smk"
include: "rules/rehearsal.smk"
include: "rules/bundle.smk"


localrules:
    verdict,
    preflight,
    correction,
    revert,
    rehearsal,
    bundle,
    gate,
    history,
    figures,
    report,
    archive,
    attest,
    verify,


rule verdict:
    default_target: True
    input:
        LAYOUT.verdict,
        LAYOUT.page,
        [file for place in ROWS.values() for file in (place.result, place.series)],


# It fails while something blocks, so that no call which ends well is taken for a clear way.
rule preflight:
    input:
        LAYOUT.preflight,
    log:
        LOGS / "preflight.log",
    params:
        run=command("require_clear"),
    shell:
        "{params.run} --log {log:q}"


rule correction:
    input:
        LAYOUT.correction,


rule revert:
    input:
        LAYOUT.revert,


rule bundle:
    input:
        LAYOUT.bundle,


rule report:
    input:
        ARTIFACTS.report,


rule archive:
    input:
        ARTIFACTS.archive,


onerror:
    if status := ci.asked_for(ARTIFACTS.status, BEGUN):
        sys.exit(status)
    if LAYOUT.verdict.exists():
        print(
            f"{LAYOUT.page} is of an earlier call: this one did not end in a verdict"
        )
