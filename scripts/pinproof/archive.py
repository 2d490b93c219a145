"""The archive of a verdict: everything that it names by digest, in one file that follows from them alone.

Raw legs, records, logs, locks, the case and its pins; not wheels, weights and prompts, whose digests are
in the records. Home paths and secrets are scrubbed; of a scrubbed file the index keeps the original's
digests too, for records name it by these. What is written is verified before it gets its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pinproof import crate, packing, page, recorded, records, replay
from pinproof.layout import Layout, RowPlace
from pinproof.reasons import Reason, Refusal
from pinproof.scrub import Scrubber

SCHEMA = "archive"
# Whose logs are archived: those of the way to a verdict. What is made of it afterwards, this archive among it,
# would make the next archive another.
STAGES = ("read_pin", "run_preflight", "check_citations", "gate_arm", "read_device", "measure_row", "decide_row",
          "check_discharges", "write_verdict")  # fmt: skip


def make(places: Layout, target: Path) -> dict[str, Any]:
    """Write the archive of a case whose verdict there is, and return its index.

    Refusals: RECORD_MISSING without a verdict, CASE_INVALID when the case, a pin or a lock holds a secret,
    and those of `replay.verify`: an archive that does not lead to its verdict gets no name.
    """
    verdict = records.read(places.verdict, "verdict")
    inputs, locks = _inputs(places)
    scrub = Scrubber.of_here(_folders(places), inputs.values())
    _refuse_secrets(inputs, scrub)
    files, listed = dict(inputs), {name: _facts(data) for name, data in inputs.items()}
    for name, path in sorted(_measured(places).items()):
        original = path.read_bytes()
        files[name] = scrub(original)
        listed[name] = _facts(files[name]) | ({} if files[name] == original else {"original": _original(original)})
    page_name = _named(places, places.page)
    files[page_name] = page.of(json.loads(files[_named(places, places.verdict)])).encode()
    listed[page_name] = _facts(files[page_name])
    about = scrub(crate.of(verdict, _named(places, places.verdict), listed, sorted(inputs)).encode())
    files[crate.FILE], listed[crate.FILE] = about, _facts(about)
    body = {
        "case": places.case.case,
        "identities": recorded.identities(places, locks),
        "code": replay.code(),
        "files": listed,
        "left_out": _left_out(places),
    }
    index = records.text(SCHEMA, body).encode()
    files[packing.INDEX], files[packing.SEAL] = index, packing.seal(index)
    with records.replacing(target) as temporary:
        temporary.write_bytes(packing.pack(files))
        replay.verify(temporary)
    return body


def _inputs(places: Layout) -> tuple[dict[str, bytes], dict[str, str]]:
    """What a person wrote, by its name in the archive, and the name of each arm's lock."""
    locks = {arm: f"inputs/locks/{arm}.txt" for arm in places.case.arms}
    sources = {replay.CASE: places.case_file} | {name: places.engine(arm).lock for arm, name in locks.items()}
    sources |= {f"inputs/pins/{arm}.md": places.root / one.pin for arm, one in places.case.arms.items()}
    if places.case.previous_pin:
        sources["inputs/previous-pin.md"] = places.root / places.case.previous_pin
    return {name: _read(path) for name, path in sources.items()}, locks


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refusal(Reason.CASE_INVALID, f"cannot be read: {error.strerror}", file=path) from None


def _measured(places: Layout) -> dict[str, Path]:
    """Every file that a stage wrote and that is archived, by its name there."""
    single = [places.pin, places.preflight, places.citations, places.discharges, places.device]
    single += [places.verdict, places.correction, places.revert]
    single += [places.gate(arm) for arm in places.case.arms]
    found = [path for path in single if path.is_file()]
    found += [path for stage in STAGES for path in _below(places.folder / "logs", f"{stage}*.log")]
    for engine in places.engines().values():
        found += [*_below(engine.folder, "*.json", deep=False), *_below(engine.folder / "logs", "*")]
        found += [engine.env_marker] if engine.env_marker.is_file() else []
    for name in places.case.checkpoints:
        record = places.checkpoint(name)
        found += [path for path in (record, record.with_suffix(".log")) if path.is_file()]
    for row in places.rows():
        found += [row.result, *_of_row(row)]
    return {_named(places, path): path for path in found}


def _of_row(row: RowPlace) -> Iterator[Path]:
    """What was measured of a row; its prompts follow from their manifest."""
    yield from _below(row.folder, "*.json", deep=False)
    yield from _below(row.folder / "corpus", "*.json", deep=False)
    yield from _below(row.legs, "*")
    yield from (path for path in _below(row.attempts, "*") if "caches" not in path.relative_to(row.attempts).parts)


def _below(folder: Path, pattern: str, *, deep: bool = True) -> list[Path]:
    """Plain files below a folder; neither links nor what is half written."""
    found = folder.rglob(pattern) if deep else folder.glob(pattern)
    return [path for path in sorted(found) if path.is_file() and not path.is_symlink() and path.name[0] != "."]


def _named(places: Layout, path: Path) -> str:
    if path.is_relative_to(places.folder):
        return f"results/{path.relative_to(places.results).as_posix()}"
    return f"store/{path.relative_to(places.store).as_posix()}"


def _folders(places: Layout) -> dict[Path, str]:
    return {places.results: "<results>", places.store: "<store>", places.root: "<workflow>", Path.cwd(): "<here>"}


def _left_out(places: Layout) -> dict[str, str]:
    """sha256 of the engines' wheels, by their place."""
    wheels = {}
    for engine in places.engines().values():
        wheel = records.read(engine.wheel, "wheel")["wheel"]
        wheels[f"store/engines/{engine.folder.name}/wheel/{wheel['file']}"] = wheel["sha256"]
    return wheels


def _refuse_secrets(inputs: dict[str, bytes], scrub: Scrubber) -> None:
    for name, text in inputs.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if scrub.finds_secret(line):
                message = "holds what looks like a secret, and identities are made of this file as it is"
                raise Refusal(Reason.CASE_INVALID, message, file=name, key=f"line {number}")


def _facts(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _original(data: bytes) -> dict[str, str]:
    """The digests by which records name a file: of its bytes, and of what it says where it is a record."""
    found = {"sha256": hashlib.sha256(data).hexdigest()}
    try:
        record = json.loads(data)
    except ValueError:
        return found
    if isinstance(record, dict) and "schema" in record:
        found["content"] = records.content_digest(record)
    return found
