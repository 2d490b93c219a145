"""CUDA architectures: what a list such as `9.0a;12.0f+PTX` names, and which devices its code runs on."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE = re.compile(r"(?:sm_|compute_)?(?P<major>\d+?)\.?(?P<minor>\d)(?P<kind>[af]?)(?P<ptx>\+PTX)?")


@dataclass(frozen=True)
class Architecture:
    """One architecture. `kind`: "" runs on later devices of its major number too, "f" likewise, "a" on its own only."""

    major: int
    minor: int
    kind: str = ""
    ptx: bool = False

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.kind}" + ("+PTX" if self.ptx else "")

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Does code for this architecture run on a device of this compute capability?"""
        if self.ptx and not self.kind and (self.major, self.minor) <= capability:
            return True
        if self.kind == "a":
            return (self.major, self.minor) == capability
        return self.major == capability[0] and self.minor <= capability[1]


def parse(text: str) -> tuple[list[Architecture], list[str]]:
    """The architectures of a list (separated by blanks, commas or semicolons), and the words that are none."""
    found, other = [], []
    for word in re.split(r"[\s,;]+", text.strip()):
        match = _ONE.fullmatch(word)
        if match:
            found.append(Architecture(int(match["major"]), int(match["minor"]), match["kind"], bool(match["ptx"])))
        elif word:
            other.append(word)
    return found, other


def capability(text: str) -> tuple[int, int] | None:
    """A device's compute capability such as 12.1; None when the text is none."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text.strip())
    return (int(match[1]), int(match[2])) if match else None
