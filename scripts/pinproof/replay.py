"""Replay: whether an archive's verdict follows from what lies beside it; no engine, no network, no device.

Every byte is looked at, every record that the verdict rests on is checked against its published schema,
and every decision is taken again by the code that took it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinproof import case, documents, packing, page, records, verdict
from pinproof.originals import Originals
from pinproof.reasons import Reason, Refusal
from pinproof.recorded import Recorded

CASE = "case.yaml"
_CODE = sorted(Path(__file__).parent.glob("*.py"))


@dataclass(frozen=True)
class Verified:
    """What was verified: the verdict, and the numbers of what was looked at."""

    case: str
    verdict: str
    files: int
    size: int  # bytes, unpacked
    scrubbed: int  # files of which the index claims what the original's digest was
    rows: int
    legs: int
    page: bool  # whether the page was compared; one that other code made is only known to be unchanged


def code() -> str:
    """Digest of this code: another version of it may lead from the same records to another verdict."""
    return records.digest({path.name: records.file_sha256(path) for path in _CODE})


def verify(path: Path) -> Verified:
    """Verify an archive. Refusals: ARCHIVE_HOSTILE, ARCHIVE_DAMAGED (a changed byte, with the file that it is in),
    ARCHIVE_DIFFERS (the verdict does not follow from the records)."""
    files = packing.unpack(path)
    index = _index(path, files)
    with tempfile.TemporaryDirectory(prefix="pinproof-verify-") as folder:
        root = Path(folder)
        packing.write(files, root)
        try:
            found = _replay(root, index)
        except Refusal as refusal:
            raise _differs(path, root, refusal, index) from None
        except Exception as error:  # records of anyone may break anything that reads them
            raise Refusal(Reason.ARCHIVE_DIFFERS, f"its records do not fit together: {error!r}", file=path) from None
    return Verified(
        case=index["case"],
        verdict=found["verdict"],
        files=len(files),
        size=sum(map(len, files.values())),
        scrubbed=sum("original" in one for one in index["files"].values()),
        rows=len(found["rows"]),
        legs=sum(row["legs"]["count"] for row in found["rows"].values()),
        page=_same_code(index),
    )


def _index(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The index, of which every file is the one that it names."""
    text = files.get(packing.INDEX, b"")
    if files.get(packing.SEAL) != packing.seal(text):
        raise Refusal(Reason.ARCHIVE_DAMAGED, "index and seal differ", file=path, key=packing.INDEX)
    try:
        index = json.loads(text)
        listed = index["files"]
        wrong = sorted(name for name, one in listed.items() if not _is(files.get(name), one))
        schema = index["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(Reason.ARCHIVE_DAMAGED, f"no index: {error!r}", file=path, key=packing.INDEX) from None
    wrong += sorted(files.keys() - listed.keys() - {packing.INDEX, packing.SEAL})
    if wrong:
        raise Refusal(Reason.ARCHIVE_DAMAGED, "not the file that the index names", file=path, key=", ".join(wrong))
    if schema != {"name": records.schema_name("archive"), "version": 1}:
        raise Refusal(Reason.ARCHIVE_DAMAGED, f"an archive of another kind: {schema}", file=path, key=packing.INDEX)
    documents.require("archive", index, path)
    return index


def _is(data: bytes | None, one: Mapping[str, Any]) -> bool:
    return data is not None and hashlib.sha256(data).hexdigest() == one["sha256"] and len(data) == one["bytes"]


def _replay(root: Path, index: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict, taken again; refused when it is not what the archive says, byte by byte."""
    places = layout(root, index)
    archived = records.read(places.verdict, "verdict")
    _require_documents(places, archived)
    text = records.text("verdict", verdict.of(places), provenance=archived.get(records.PROVENANCE))
    _require_equal(places.verdict, text)
    if _same_code(index):
        _require_equal(places.page, page.of(archived))
    return archived


def _require_documents(places: Recorded, archived: Mapping[str, Any]) -> None:
    """Refuse records that are not what their published schemas say."""
    documents.require("verdict", archived, places.verdict)
    for place in places.rows():
        documents.require("row", records.read(place.result, "row"), place.result)
        for path in sorted(place.legs.glob("s*.json")):
            if not path.name.endswith(".raw.json"):
                documents.require("leg", records.read(path, "leg"), path)


def layout(root: Path, index: Mapping[str, Any]) -> Recorded:
    """The places of an archived case in the folder that it was unpacked in."""
    file = root / CASE
    originals = {name: one["original"] for name, one in index["files"].items() if "original" in one}
    return Recorded(
        case.load(file),
        file,
        root,
        root / "results",
        Originals(
            {root / name: one["sha256"] for name, one in originals.items()},
            {root / name: one["content"] for name, one in originals.items() if "content" in one},
        ),
        index["identities"],
    )


def _same_code(index: Mapping[str, Any]) -> bool:
    return index["code"] == code()


def _require_equal(path: Path, text: str) -> None:
    if path.read_text(encoding="utf-8") != text:
        raise Refusal(Reason.ARCHIVE_DIFFERS, "it is not what the records beside it lead to", file=path)


def _differs(path: Path, root: Path, refusal: Refusal, index: Mapping[str, Any]) -> Refusal:
    """A refusal of the replay, with the file's name in the archive."""
    other = "" if _same_code(index) else "; the archive was made by another version of pinproof than this one"
    name = (refusal.file or "").removeprefix(f"{root}/")
    place = ": ".join(part for part in (name, refusal.key) if part)
    text = f"{refusal.message} [{refusal.reason.code}]{other}"
    return Refusal(Reason.ARCHIVE_DIFFERS, text, file=path, key=place or None)
