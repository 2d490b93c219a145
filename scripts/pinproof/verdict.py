"""The verdict: does the pin hold? A pure function of the records that it names by digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pinproof import citations, decision, discharges, gate, records, result
from pinproof.case import ORACLE
from pinproof.decision import Cause, HardGate
from pinproof.layout import Layout
from pinproof.pin import Pin
from pinproof.reasons import Owner, Reason, Refusal

REHEARSAL = "REHEARSAL"
_DOUBT = (Owner.INSTRUMENT, Owner.ENVIRONMENT)


def of(places: Layout) -> dict[str, Any]:
    """The body of verdict.json.

    Every row is judged again from its legs, every identity from pin and version record, and must come
    out as its file says. Refusals: RECORD_MISSING and RECORD_DAMAGED, with the file.
    """
    arms = {name: _arm(places, name) for name in sorted(places.case.arms)}
    found = {row.id: _result(places, row.id) for row in places.case.rows}
    results = {row_id: body for row_id, (body, _) in found.items()}
    device = _device(places)
    judged = {row_id: _judge(row_id, body, one, arms, device) for row_id, (body, one) in found.items()}
    cited = _read(places.citations, "citations") if citations.wanted(places.case) else None
    judged |= {row_id: cause for row_id, cause in _uncited(cited).items() if row_id in judged}
    argued = _discharges(places)
    pin = decision.decide_pin(
        {
            row_id: one if isinstance(one, decision.RowDecision) else None
            for row_id, one in judged.items()
            if one is not None
        },
        [
            *(_identity_gate(name, arm["gate"]) for name, arm in arms.items()),
            *discharges.gates(argued),
            *_warmups(results),
        ],
        alpha=places.case.decision.red_budget,
    )
    lost = {row_id: cause for row_id, cause in judged.items() if isinstance(cause, Cause)}
    return {
        "case": places.case.case,
        "question": places.case.question,
        "advance": places.case.advance,
        **_words(pin.verdict),
        "against": [_cause(cause) for cause in pin.against],
        "open": [_cause(lost.get(cause.subject, cause)) for cause in pin.open],
        "decision": pin.as_record(),
        "arms": arms,
        "device": device,
        "checkpoints": {name: _read(places.checkpoint(name), "checkpoint") for name in places.case.checkpoints},
        "rows": results,
        "baselines": _baselines(places, cited),
        "discharges": [one.as_record() for one in argued],
        "not_owed": [one.model_dump() for one in places.case.not_owed],
        "inputs": _inputs(places),
    }


def _words(found: decision.Verdict) -> dict[str, Any]:
    """A rehearsal says what a measured run would have said, and is never a verdict itself."""
    return {"verdict": REHEARSAL, "would_say": str(found)} if records.rehearsing() else {"verdict": str(found)}


def _arm(places: Layout, name: str) -> dict[str, Any]:
    engine = places.engine(name)
    found, version = _read(places.gate(name), "gate"), records.read(engine.version, "version")
    if found["version_digest"] != places.originals.content(engine.version, version):
        raise Refusal(Reason.RECORD_DAMAGED, "the gate looked at another version record", file=places.gate(name))
    again = {"arm": name, "engine": engine.folder.name, **_compare(places, name, version)}
    if records.digest(again) != records.digest({key: found.get(key) for key in again}):
        message = "pin and version record do not lead to what it says"
        raise Refusal(Reason.RECORD_DAMAGED, message, file=places.gate(name))
    return {
        "engine": engine.folder.name,
        "key": engine.key,
        "gate": found,
        "environment": {name: field["value"] for name, field in sorted(version["fields"].items())},
        "distributions": len(version["distributions"]["value"] or []),
        "version_digest": found["version_digest"],
    }


def _compare(places: Layout, name: str, version: Mapping[str, Any]) -> dict[str, Any]:
    """What the gate of an arm must say."""
    arm = places.case.arms[name]
    arms = _read(places.pin, "pin")["arms"]
    if name not in arms:
        raise Refusal(Reason.RECORD_DAMAGED, f"arm {name} is not in it", file=places.pin)
    declared = Pin(**{"vllm_commit": None, **arms[name]["fields"]})
    build = gate.Build.of(places.engine(name))
    return gate.as_record(gate.compare(declared, version, arm.compare, build), arm.engine.mode)


def _identity_gate(name: str, found: Mapping[str, Any]) -> HardGate:
    """The identity of an arm as a hard gate. Only the oracle is the pin: another arm that is not what
    its block says is a wrong input, and never speaks against the pin. Nor does a version that may be
    another's: a foreign import or a broken environment explains any difference."""
    subject = f"identity of {name}"
    if found["outcome"] == "pass":
        return HardGate(subject, True)
    reasons = [Reason.from_code(row["reason"]) for row in found["rows"] if row["reason"]]
    doubts = [reason for reason in reasons if reason.owner in _DOUBT or reason is Reason.IDENTITY_AMBIGUOUS]
    reason = (doubts or reasons)[0]
    if name != ORACLE:
        reason = Reason.REFERENCE_IDENTITY
    return HardGate(subject, None if found["outcome"] == "unknown" else False, reason)


def _result(places: Layout, row_id: str) -> tuple[dict[str, Any], decision.RowDecision | None]:
    path = places.row(row_id).result
    found = _read(path, "row")
    again, judged = result.judge(places, row_id)
    if records.digest(again) != records.digest({key: found[key] for key in found if key != "schema"}):
        raise Refusal(Reason.RECORD_DAMAGED, "its legs do not lead to what it says", file=path)
    return again, judged


def _judge(
    row_id: str,
    found: Mapping[str, Any],
    judged: decision.RowDecision | None,
    arms: Mapping[str, Any],
    device: Mapping[str, Any],
) -> decision.RowDecision | Cause | None:
    """The row's decision; a cause instead when there is none to take, None when its hard gates are all it has."""
    if failure := found["failure"]:
        reason = Reason.from_code(failure["reason"])
        return Cause(row_id, reason, f"{failure['message']}; {reason.remedy}")
    for arm, digests in found["measured"]["versions"].items():
        if digests != [arms[arm]["version_digest"]]:
            return Cause(row_id, Reason.RECORD_FOREIGN, f"its legs were taken with another reading of {arm}'s versions")
    if [digest for digest in found["measured"]["devices"] if digest != device["digest"]]:
        return Cause(
            row_id, Reason.DEVICE_OTHER, f"its legs were taken on another device; {Reason.DEVICE_OTHER.remedy}"
        )
    return judged


def _device(places: Layout) -> dict[str, Any]:
    """The device's record. Refusal RECORD_DAMAGED when its digest, by which legs name it, is not of its identity."""
    record = _read(places.device, "device")
    if record["digest"] != records.digest(record["identity"]):
        raise Refusal(Reason.RECORD_DAMAGED, "its digest is not that of its identity", file=places.device)
    return record


def _warmups(results: Mapping[str, Mapping[str, Any]]) -> list[HardGate]:
    """Whether the callables of warm-up rows succeeded: hard gates, without statistics."""
    return [
        HardGate(
            f"{row_id}: {gate['callable']} of {gate['arm']}",
            gate["passed"],
            None if gate["reason"] is None else Reason.from_code(gate["reason"]),
        )
        for row_id, found in results.items()
        for gate in (found["warmup"] or {"gates": []})["gates"]
    ]


def _uncited(cited: Mapping[str, Any] | None) -> dict[str, Cause]:
    """The rows whose baseline is no longer where it was published: nothing is judged by such a figure."""
    return {
        one["row"]: Cause(
            one["row"],
            Reason.CITATION_GONE,
            f"{one['file']}:{one['line']}, {one['quote']!r}: {one['text']}; {Reason.CITATION_GONE.remedy}",
        )
        for one in (cited or {}).get("citations", ())
        if one["state"] == citations.State.GONE
    }


def _discharges(places: Layout) -> list[discharges.Judged]:
    """The case's discharges, judged again from the witnesses that are recorded."""
    if not places.case.discharges:
        return []
    recorded = _read(places.discharges, "discharges")
    found = discharges.from_record(recorded)
    stated = [(one.id, one.kind, one.argument) for one in places.case.discharges]
    again = [one.as_record() for one in found]
    if [(one.id, one.kind, one.argument) for one in found] != stated or again != recorded["discharges"]:
        raise Refusal(Reason.RECORD_DAMAGED, "the case's discharges do not lead to it", file=places.discharges)
    return found


def _baselines(places: Layout, cited: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was published of every row, where it was found, and what its record lacks."""
    return {
        row.id: {
            "published": row.published and row.published.model_dump(),
            "citations": [one for one in (cited or {}).get("citations", ()) if one["row"] == row.id],
            "remarks": [one["text"] for one in (cited or {}).get("remarks", ()) if one["row"] == row.id],
        }
        for row in places.case.rows
        if row.published or citations.baselines_of(row)
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "subject": cause.subject,
        "reason": cause.reason.code,
        "owner": str(cause.reason.owner),
        "needs": cause.needs,
    }


def _inputs(places: Layout) -> dict[str, str]:
    """Content digest of every record that the verdict was made from, by its place under its root."""
    rows = places.rows()
    named = {places.pin: "pin", places.device: "device"}
    named |= {places.gate(arm): "gate" for arm in places.case.arms}
    named |= {engine.version: "version" for engine in places.engines().values()}
    named |= {engine.source: "source" for engine in places.engines().values() if engine.build}
    named |= {places.checkpoint(name): "checkpoint" for name in places.case.checkpoints}
    named |= {places.citations: "citations"} if citations.wanted(places.case) else {}
    named |= {places.discharges: "discharges"} if places.case.discharges else {}
    named |= {row.result: "row" for row in rows} | {row.series: "series" for row in rows}
    return {
        _name(places, path): places.originals.content(path, records.read(path, schema))
        for path, schema in named.items()
    }


def _name(places: Layout, path: Path) -> str:
    root = places.results if path.is_relative_to(places.folder) else places.store
    return path.relative_to(root).as_posix()


def _read(path: Path, schema: str) -> dict[str, Any]:
    """A record without what varies without meaning."""
    record = records.read(path, schema)
    record.pop(records.PROVENANCE, None)
    return record
