"""Every fault of the suite, over the real workflow: it ends as it must, and the next call goes on."""

from __future__ import annotations

import pytest
from tests.faults import data, hostile, network, process, resources
from tests.faults.examine import examine
from tests.faults.fault import Fault, Line
from tests.faults.scene import Scene, can_mount

from pinproof.reasons import Owner

SUITE = {
    "process": process.FAULTS,
    "resource": resources.FAULTS,
    "data": data.FAULTS,
    "network": network.FAULTS,
    "hostile": hostile.FAULTS,
}
EVERY = [(kind, fault) for kind, faults in SUITE.items() for fault in faults]


def parameters() -> list:
    """The faults; all but a quick share of them are for `make faults`."""
    return [
        pytest.param(kind, fault, id=f"{kind}-{fault.name}", marks=[] if fault.quick else [pytest.mark.faults])
        for kind, fault in EVERY
    ]


@pytest.mark.workflow
@pytest.mark.parametrize(("kind", "fault"), parameters())
def test_a_fault_ends_as_it_must_and_the_next_call_goes_on(
    kind: str, fault: Fault, scene: Scene, seen: list[Line]
) -> None:
    if fault.root and not can_mount():
        pytest.skip("takes the right to mount a file system")
    seen.append(examine(kind, fault, scene))


def test_every_fault_has_a_name_of_its_own_and_says_whose_failure_it_is() -> None:
    assert len({fault.name for _, fault in EVERY}) == len(EVERY)
    for _, fault in EVERY:
        assert (fault.reason is None) == (fault.owner is None), fault.name


def test_only_the_pinned_engine_is_ever_the_target() -> None:
    assert {fault.outcome for _, fault in EVERY if fault.owner is not Owner.TARGET} <= {
        "HOLD",
        "UNDECIDED",
        "REFUSED",
        "STOPPED",
    }
