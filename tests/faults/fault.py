"""A fault as data: what is done, and what must come of it.

`act` does it to a scene and returns the call that suffered it; `mend` takes away what a person would
have to take away, so that the next call can be asked for a HOLD. Nothing else is code: the outcome, the
reason and whose failure it is are stated, and the suite holds the workflow to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pinproof.reasons import Owner, Reason

if TYPE_CHECKING:
    from tests.faults.scene import Scene
    from tests.stubs.workflow import Finished


class Outcome(StrEnum):
    """What a call comes to."""

    HOLD = "HOLD"  # the fault changed nothing
    UNDECIDED = "UNDECIDED"
    REVERT = "REVERT"
    REFUSED = "REFUSED"  # a stage said why it will not go on
    STOPPED = "STOPPED"  # ended from outside, or by Snakemake; nobody could say more


def nothing(scene: Scene) -> None:
    """There is nothing to mend."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    `what` is what is done, in words. `reason` and `owner` are what the call must name, None where nothing
    is at fault; `says` are words that must stand in what the call says. `voids` says that legs which were
    complete do not count any more, and why that is right. `root`: it takes the rights of root.
    """

    name: str
    what: str
    act: Callable[[Scene], Finished]
    outcome: Outcome
    reason: Reason | None = None
    owner: Owner | None = None
    says: str = ""
    mend: Callable[[Scene], None] = nothing
    then: Outcome = Outcome.HOLD
    voids: str = ""
    quick: bool = False
    root: bool = False


@dataclass(frozen=True)
class Line:
    """What was seen of one fault."""

    kind: str
    name: str
    what: str
    outcome: str
    reason: str | None
    owner: str | None
    then: str
    survivors: tuple[str, ...]  # when the call had ended, by their marker; none is left after the next one
    files: tuple[str, ...]  # left over, by name

    def as_record(self) -> dict:
        """The line as JSON values."""
        return asdict(self)
