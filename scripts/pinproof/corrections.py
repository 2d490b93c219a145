"""Corrections: what the blocks of all arms would have to say, as one patch file."""

from __future__ import annotations

from pathlib import Path

from pinproof import gate, history, pin, records
from pinproof.layout import Layout
from pinproof.reasons import Refusal

NOTHING = "Nothing to correct: every block says what its build reports, as far as it is known.\n"


def of(places: Layout) -> str:
    """The corrections of all arms, one after another, or that there are none.

    Where an engine is installed its version record speaks, else what the build's metadata foretells.
    Refusal PIN_INVALID when a page that needs one is in no Git checkout.
    """
    found = dict.fromkeys(text for name in places.case.arms if (text := _of_arm(places, name)))
    return "\n".join(found) or NOTHING


def write(places: Layout, name: str) -> Path | None:
    """Write the correction of one arm beside its gate and return the file; None when nothing is to be corrected."""
    arm = places.case.arms[name]
    declared = pin.read_pin(places.root / arm.pin)
    patch = gate.correction(declared, _rows(places, name, declared), arm.engine.mode, path=arm.pin)
    file = places.gate(name).with_name("correction.patch")
    if patch is None:
        file.unlink(missing_ok=True)
        return None
    records.write_text(file, patch)
    return file


def _of_arm(places: Layout, name: str) -> str | None:
    arm = places.case.arms[name]
    file = places.root / arm.pin
    declared, mode = pin.read_pin(file), arm.engine.mode
    rows = _rows(places, name, declared)
    if gate.correction(declared, rows, mode, path=arm.pin) is None:
        return None
    return gate.correction(declared, rows, mode, path=history.page(file).path)


def _rows(places: Layout, name: str, declared: pin.Pin) -> list[gate.FieldVerdict]:
    arm, place = places.case.arms[name], places.engine(name)
    try:
        version = records.read(place.version, "version")
    except Refusal:
        return gate.foresee(declared, records.read(place.metadata, "metadata"), arm.compare, arm.engine.mode)
    return gate.compare(declared, version, arm.compare, gate.Build.of(place))
