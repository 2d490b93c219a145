"""The trend: verdicts of several pins side by side, a row's ratio over pins, its noise, who held and who did not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinproof import documents, packing, records, rowtables
from pinproof.artifacts import Artifacts
from pinproof.case import ORACLE
from pinproof.layout import Layout
from pinproof.markdown import item, table
from pinproof.measures import MEASURES
from pinproof.reasons import Reason, Refusal

_TOLD = ("vllm_runtime_version", "torch_version", "flashinfer_version", "nvidia_cutlass_dsl_version")
Key = tuple[str, str]  # case, row


@dataclass(frozen=True)
class Past:
    """One verdict, and what its pin is called beside the others."""

    name: str
    verdict: Mapping[str, Any]

    @property
    def when(self) -> str:
        return (self.verdict.get(records.PROVENANCE) or {}).get("written") or "unknown"


def keep(places: Layout, verdict: Mapping[str, Any]) -> Path:
    """Keep a verdict beside those of earlier pins: the next pin's takes its place in the case's folder."""
    path = Artifacts(places).verdicts / f"{records.content_digest(verdict)[:16]}.json"
    if not path.exists():
        records.write_text(path, places.verdict.read_text(encoding="utf-8"))
    return path


def found(given: Sequence[Path]) -> list[Path]:
    """The verdicts and archives in these files and folders, each once, sorted."""
    files: set[Path] = set()
    for path in given:
        files |= {path} if path.is_file() else set()
        for pattern in ("*/verdict.json", "*/verdicts/*.json", "*.tar.zst"):
            files |= set(path.glob(pattern))
    return sorted(files)


def read(files: Iterable[Path]) -> list[Past]:
    """The verdicts of these files, each once, the oldest first.

    Refusals: RECORD_DAMAGED, RECORD_FOREIGN, and those of `packing.unpack`; RECORD_MISSING when there is none.
    """
    verdicts: dict[str, Mapping[str, Any]] = {}
    for file in files:
        one = _archived(file) if file.name.endswith(".tar.zst") else records.read(file, "verdict")
        documents.require("verdict", one, file)
        # Not by what it says: of a scrubbed copy that is another text.
        verdicts.setdefault(records.digest([one["case"], one["inputs"]]), one)
    if not verdicts:
        raise Refusal(Reason.RECORD_MISSING, "no verdict of any pin is here: --config verdicts=FOLDER names others")
    ordered = sorted(verdicts.values(), key=lambda one: (Past("", one).when, one["case"]))
    return [Past(name, one) for name, one in zip(_names(ordered), ordered, strict=True)]


def page(past: Sequence[Past]) -> str:
    """The trend as Markdown: the pins, then a table a row."""
    lines = [
        [one.name, one.when, one.verdict["verdict"], one.verdict["case"], _device(one.verdict), _held(one.verdict)]
        for one in past
    ]
    parts = [
        f"# {len(past)} pins side by side, the oldest first" if len(past) > 1 else "# 1 pin",
        table(lines, ["pin", "written", "verdict", "case", "device", "rows that held"]),
        "A cell is the measured ratio (times better), the standard deviation of its A/A pairs, and its outcome.",
    ]
    for case, row in _rows(past):
        parts += [f"## {case}, {row}", _table(past, (case, row))]
    causes = [
        item(f"{one.name}, **{cause['subject']}**: {cause['reason']} ({cause['owner']}'s failure)")
        for one in past
        for cause in (*one.verdict["against"], *one.verdict["open"])
    ]
    parts += ["## Who did not hold, and why", "\n".join(causes)] if causes else []
    return "\n\n".join(parts) + "\n"


def points(past: Sequence[Past], key: Key) -> dict[tuple[str, str], list[Mapping[str, Any] | None]]:
    """The decision about every cell and metric of a row, one a pin; None where a pin has none."""
    where = dict.fromkeys(_where(metric) for one in past for metric in _metrics(one.verdict, key))
    return {
        place: [next((one for one in _metrics(each.verdict, key) if _where(one) == place), None) for each in past]
        for place in where
    }


def keys(past: Sequence[Past]) -> list[Key]:
    """The rows of all pins that have a decision, by case."""
    return [key for key in _rows(past) if points(past, key)]


def _table(past: Sequence[Past], key: Key) -> str:
    lines = [
        [f"{cell}, {MEASURES[name].title}", *(_cell(one) for one in decided)]
        for (cell, name), decided in points(past, key).items()
    ]
    outcomes = [_outcome(one.verdict, key) for one in past]
    return table([["the row", *outcomes], *lines], ["", *(one.name for one in past)])


def _cell(decided: Mapping[str, Any] | None) -> str:
    if decided is None:
        return "-"
    _, measured, _, _, noise = rowtables.shown(decided)
    return f"{measured}, sd {noise}, {decided['outcome'].upper()}"


def _outcome(verdict: Mapping[str, Any], key: Key) -> str:
    row = verdict["rows"].get(key[1]) if verdict["case"] == key[0] else None
    return row["outcome"].upper() if row else "-"


def _rows(past: Sequence[Past]) -> list[Key]:
    return sorted({(one.verdict["case"], row) for one in past for row in one.verdict["rows"]})


def _metrics(verdict: Mapping[str, Any], key: Key) -> list[Mapping[str, Any]]:
    row = verdict["rows"].get(key[1]) if verdict["case"] == key[0] else None
    return rowtables.series(row)["metrics"] if row and row["decision"] else []


def _where(decided: Mapping[str, Any]) -> tuple[str, str]:
    return decided["metric"]["cell"], decided["metric"]["name"]


def _names(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What tells the pins apart: the version of vLLM, what else differs between them, a number where nothing does."""
    reads = [verdict["arms"][ORACLE]["environment"] for verdict in verdicts]
    differing = [name for name in _TOLD if len({one.get(name) for one in reads}) > 1]
    told = [" ".join(str(one.get(name) or "unknown") for name in differing or _TOLD[:1]) for one in reads]
    for number, name in enumerate(told):
        again = told[: number + 1].count(name)
        yield f"{name} ({again})" if told.count(name) > 1 else name


def _device(verdict: Mapping[str, Any]) -> str:
    identity = verdict["device"]["identity"]
    return str(identity.get("name") or identity.get("model") or "unknown")


def _held(verdict: Mapping[str, Any]) -> str:
    passed = sum(row["outcome"] == "pass" for row in verdict["rows"].values())
    return f"{passed} of {len(verdict['rows'])}"


def _archived(file: Path) -> dict[str, Any]:
    """The verdict in an archive; its files are checked one by one by `verify`, not here."""
    files = packing.unpack(file)
    names = [name for name in files if name.startswith("results/") and name.endswith("/verdict.json")]
    if len(names) != 1:
        raise Refusal(Reason.ARCHIVE_DAMAGED, f"holds {len(names)} verdicts", file=file)
    try:
        return json.loads(files[names[0]])
    except ValueError:
        raise Refusal(Reason.ARCHIVE_DAMAGED, "not a whole record", file=file, key=names[0]) from None
