"""Hostile input through the whole workflow: nothing of it reaches a shell, and nothing is written where it says.

What parsers make of any input at all is asked in test_hostile_input.py, without the workflow.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.faults.fault import Fault, Outcome
from tests.faults.scene import CASE, Place, Scene
from tests.stubs.workflow import Finished

from pinproof.reasons import Owner, Reason

PWNED = "pwned"  # what a shell would make
# Words that a shell, a format string or a template would take for more than words.
WORDS = f"$(touch {PWNED}) `touch {PWNED}` ; touch {PWNED} && touch {PWNED} | tee {PWNED} {{log}} {{0}} %s \\ ' \" \n#"
_INVALID = (Reason.CASE_INVALID, Owner.INPUT)
Act = Callable[[Scene], Finished]


def _case_of(data: bytes | Callable[[dict[str, Any]], object]) -> Act:
    """The case file is these bytes, or is changed so; nothing but the logs of Snakemake may be written."""

    def act(scene: Scene) -> Finished:
        file = scene.place.case_file
        shutil.copyfile(file, _kept(scene))
        if callable(data):
            value = yaml.safe_load(file.read_text())
            data(value)
            file.write_text(yaml.safe_dump(value, sort_keys=False))
        else:
            file.write_bytes(data)
        return _watched(scene, scene.call)

    return act


def _kept(scene: Scene) -> Path:
    return scene.place.folder / "case.kept"


def _case_again(scene: Scene) -> None:
    _kept(scene).replace(scene.place.case_file)


def _watched(scene: Scene, call: Callable[[], Finished]) -> Finished:
    """A call that may write in the results alone, and start no program that its input names."""
    before = _outside(scene)
    finished = call()
    new = _outside(scene) - before
    assert new == set(), f"written outside of the results: {new}"
    return finished


def _outside(scene: Scene) -> set[str]:
    """Files beside the results, above them and where a careless path would lead; logs of calls are the tests' own."""
    folder = scene.place.folder
    found = [path for path in folder.iterdir() if path.suffix not in (".log", ".status", ".part")]
    found += [*folder.parent.iterdir(), *scene.material.folder.iterdir(), *Path("/tmp").glob(f"*{PWNED}*")]
    found += [*scene.results.rglob(PWNED), *scene.place.root.glob(f"*{PWNED}*")]
    return {str(path) for path in found}


def _words_to_servers(scene: Scene) -> Finished:
    """Arguments and variables of a server that a shell would take for commands."""

    def change(case: dict[str, Any]) -> None:
        case["rows"][0]["serve"]["args"] += ["--note", WORDS]
        case["arms"]["oracle"]["serve"]["env"]["NOTE"] = WORDS
        case["question"] = WORDS

    scene.place.edit(change)
    scene.kept = {}
    finished = _watched(scene, scene.call)
    log = next(scene.measured.glob("attempts/*/series1/server-oracle-1.log"))
    assert repr(WORDS)[1:-1] in log.read_text()  # the server got it, letter by letter
    return finished


def _folder_of_words(scene: Scene) -> Finished:
    """The workflow lies in a folder whose name a shell would take for commands."""
    folder = scene.place.folder.with_name(f"a $(touch {PWNED}) {{log}} 'b' ; touch {PWNED}")
    other = scene.place.copy(folder)
    there = Scene(Place(other.folder, other.material, other.root, other.store), _Leaving(scene))
    there.forget(f"{CASE}/rows/*.json", f"{CASE}/arms/oracle/gate.json")
    return _watched(scene, there.call)


class _Leaving:
    """The stack of another scene."""

    def __init__(self, scene: Scene) -> None:
        self.callback = scene.on_leaving


def _pin_of_words(name: str) -> Act:
    """A pin file whose name a shell, or Snakemake, would take for more than a name."""

    def act(scene: Scene) -> Finished:
        shutil.copyfile(scene.place.case_file, _kept(scene))
        value = yaml.safe_load(scene.place.case_file.read_text())
        file = scene.place.folder / name
        shutil.copyfile(value["arms"]["oracle"]["pin"], file)
        value["arms"]["oracle"]["pin"] = str(file)
        scene.place.write(value)
        return _watched(scene, scene.call)

    return act


def _asked(*words: str) -> Act:
    """A call with words of a user that a shell would take for commands."""
    return lambda scene: _watched(scene, lambda: scene.call(*words))


def _pin_of(data: bytes) -> Act:
    """The oracle's pin file is these bytes."""

    def act(scene: Scene) -> Finished:
        file = scene.place.folder / "pin.md"
        file.write_bytes(data)
        return _case_of(lambda case: case["arms"]["oracle"].update(pin=str(file)))(scene)

    return act


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a dotted key of a case."""

    def change(case: dict[str, Any]) -> None:
        *way, last = key.split(".")
        at: Any = case
        for part in way:
            at = at[int(part) if part.isdigit() else part]
        at[last] = value

    return change


def _cited(file: str) -> Callable[[dict[str, Any]], None]:
    cited = [{"file": file, "line": 1, "quote": "root"}]
    published = {"pin": None, "device": None, "date": None, "cited": cited}

    def change(case: dict[str, Any]) -> None:
        case["pages"] = "/etc"
        case["rows"][0]["published"] = published

    return change


BOMB = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join([f'*{chr(97 + at)}'] * 9)}]\n".encode() for at in range(8)
)
# A case file that is none, and what it is in words.
NO_CASE = {
    "empty": (b"", "nothing"),
    "binary": (bytes(range(256)) * 16, "bytes that are no text"),
    "list": (b"- a\n- b\n", "a list"),
    "tag": (b"case: !!python/object/apply:os.system ['touch pwned']\n", "a tag that would run a command"),
    "bomb": (BOMB, "aliases that unfold to 9^8 values"),
    "deep": (b"case: " + b"[" * 5000 + b"]" * 5000, "nested 5,000 deep"),
    "twice": (b"case: a\ncase: b\n", "a key given twice"),
}
# A key of a case that says what it must not.
BAD_KEYS = {
    "case-of-words": ("case", f"x; touch {PWNED}", "its name is a command"),
    "case-outside": ("case", "../../outside", "its name leads out of the results"),
    "row-of-words": ("rows.0.id", f"$(touch {PWNED})", "a row's name is a command"),
    "row-outside": ("rows.0.id", "../../../outside", "a row's name leads out of the results"),
    "row-of-wildcards": ("rows.0.id", "{measured}", "a row's name is a wildcard of Snakemake"),
    "version-of-words": ("arms.oracle.engine.version", f"1.1.0 --index-url x; touch {PWNED}", "a version is a command"),
    "nan-tolerance": ("rows.0.metrics.0.tolerance", float("nan"), "a tolerance is NaN"),
    "endless-tolerance": ("rows.0.metrics.0.tolerance", float("inf"), "a tolerance is infinite"),
    "huge-number": ("rows.0.cells.0.prompts", 10**30, "a number of prompts has 31 digits"),
}
BAD_PINS = {
    "pin-of-bytes": (bytes(range(256)), "bytes that are no text"),
    "pin-twice": (b"```parity-pin\na = b\n```\n```parity-pin\na = b\n```\n", "two blocks"),
    "pin-of-words": (
        f"```parity-pin\nbuild_mode = $(touch {PWNED})\nvllm_runtime_version = 1\n```\n".encode(),
        "a value that is a command",
    ),
}

FAULTS = [
    *(
        Fault(f"case-{name}", f"the case file is {what}", _case_of(data), Outcome.REFUSED, *_INVALID, mend=_case_again)
        for name, (data, what) in NO_CASE.items()
    ),
    *(
        Fault(name, f"in the case {what}", _case_of(_set(key, value)), Outcome.REFUSED, *_INVALID, mend=_case_again)
        for name, (key, value, what) in BAD_KEYS.items()
    ),
    Fault("page-outside", "a cited page leads out of the folder of pages", _case_of(_cited("../etc/passwd")),
          Outcome.REFUSED, *_INVALID, mend=_case_again),
    Fault("page-elsewhere", "a cited page is an absolute path", _case_of(_cited("/etc/passwd")),
          Outcome.REFUSED, *_INVALID, mend=_case_again),
    *(
        Fault(name, f"the pin file holds {what}", _pin_of(data), Outcome.REFUSED, Reason.PIN_INVALID, Owner.INPUT,
              mend=_case_again)
        for name, (data, what) in BAD_PINS.items()
    ),
    Fault("pin-file-of-words", "a pin file's name is a command", _pin_of_words(f"$(touch {PWNED}) ; 'a'.md"),
          Outcome.HOLD, mend=_case_again),
    Fault("pin-file-of-wildcards", "a pin file's name is a wildcard of Snakemake", _pin_of_words("{row}.md"),
          Outcome.REFUSED, *_INVALID, mend=_case_again),
    Fault("words-to-servers", "arguments, variables and the question hold what shells and templates act on",
          _words_to_servers, Outcome.HOLD),
    Fault("folder-of-words", "the folder's name is a command", _folder_of_words, Outcome.HOLD),
    Fault("fault-of-words", "the fault that a rehearsal is asked for is a command",
          _asked("rehearsal", "--config", f"fault=x; touch {PWNED}"), Outcome.REFUSED, *_INVALID),
    Fault("archive-of-words", "the archive that is to be verified is named like a command",
          _asked("verify", "--config", f"archive=x; touch {PWNED}"),
          Outcome.REFUSED, Reason.ARCHIVE_DAMAGED, Owner.INPUT),
]  # fmt: skip
