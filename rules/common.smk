import shlex
import sys
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from pinproof import (
    artifacts,
    bundle,
    case,
    ci,
    citations,
    layout,
    plan,
    records,
    series,
)
from pinproof import report as report_pages
from pinproof.reasons import Reason, Refusal

if not workflow.configfiles:
    raise WorkflowError("give the case as a file: --configfile CASE.yaml")

BEGUN = time.time()
CASE_FILE = Path(workflow.configfiles[-1])
# What a rehearsal is to suffer.
FAULT = config.pop("fault", None)
# What is to be verified, signed with, or set side by side, is no part of any case.
GIVEN = {
    name: str(config.pop(name))
    for name in ("archive", "attestation", "key", "verdicts")
    if name in config
}


def read_case():
    """The case, and where its files lie; a refusal names file, key and remedy."""
    try:
        declared = case.load(CASE_FILE)
        if case.parse(dict(config), CASE_FILE) != declared:
            raise WorkflowError(
                f"a case is one file: edit {CASE_FILE} instead of giving --config or two files"
            )
        places = layout.Layout(declared, CASE_FILE, Path(workflow.basedir))
        places.rows(), places.engines()
        pins = {f"arms.{name}.pin": arm.pin for name, arm in declared.arms.items()}
        for key, file in {"previous_pin": declared.previous_pin, **pins}.items():
            if file and not (places.root / file).is_file():
                raise Refusal(
                    Reason.CASE_INVALID,
                    f"no such file: {file}",
                    file=CASE_FILE,
                    key=key,
                )
        return declared, places
    except Refusal as refusal:
        raise WorkflowError(str(refusal)) from None


def command(script):
    """The call of a script, a small command-line program. Only ids and file names pass through the shell.

    A function of `output` is a derived parameter, which Snakemake does not track: where the workflow
    and its interpreter lie changes no result.
    """
    words = [
        sys.executable,
        str(Path(workflow.basedir) / "scripts" / f"{script}.py"),
        "--case",
        str(CASE_FILE),
    ]
    return lambda wildcards, output: shlex.join(words)


def given(*names):
    """What was given on the command line under these names, as arguments of a script."""
    return shlex.join(f"--{name}={GIVEN[name]}" for name in names if name in GIVEN)


CASE, LAYOUT = read_case()
ARTIFACTS = artifacts.Artifacts(LAYOUT)
ENGINES = LAYOUT.engines()
CHECKPOINTS = {LAYOUT.checkpoint(name).stem: name for name in CASE.checkpoints}
ROWS = {place.row.id: place for place in LAYOUT.rows()}
LOGS = LAYOUT.folder / "logs"


def preflight_blocked_at(path):
    """When a preflight found what blocks; null when it did not, or was not run."""
    try:
        blocked = records.read(path, "preflight")["outcome"] == "blocked"
    except Refusal:
        return None
    return path.stat().st_mtime_ns if blocked else None


def waited_for(files, row):
    """Inputs that a row waits for and does not depend on: `ancient`, while it is not to be measured again.

    Behind an ancient input of a job that will run, Snakemake 9 looks at no other reason to run
    (snakemake#4166), such as one more failed attempt.
    """
    try:
        found = records.read(ROWS[row].series, "series")
    except Refusal:
        return ancient(files)
    again = found["outcome"] == "failed" or series.asked_for(LAYOUT, row) != found.get(
        "asked_for", ""
    )
    return files if again else ancient(files)


wildcard_constraints:
    arm="|".join(CASE.arms),
    checkpoint="|".join(CHECKPOINTS),
    engine="|".join(ENGINES),
    row="|".join(ROWS),
    measured="|".join(place.folder.name for place in ROWS.values()),
