"""The report of the faults: docs/faults.md, of what was seen; no line is written of what was not."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tests.faults.fault import Line

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
KINDS = {
    "process": "Processes that are killed, stopped, or started twice",
    "resource": "Resources that run out",
    "data": "Files that are not what they were",
    "network": "What a server sends its client",
    "hostile": "Hostile input",
    "real": "A sample on real vLLM",
}
_HEAD = """\
# Faults

What was done to the workflow, and what came of it. Written by `make faults` from what it saw, over the
real workflow; engines are stubs but in the last table. Nobody's failure is a fault that changed
nothing, or one that leaves nobody who could speak: the next call then tells what it finds.

- **came to**: what the call with the fault ended in. REFUSED: a stage said why it will not go on.
  STOPPED: it was ended from outside.
- **next**: what the next call came to, the fault being gone. No leg that was complete is measured again,
  but where the table says that it does not count.
- **left**: processes when the call had ended (the next call ends them before it uses the device, and none
  is left after it), and files that nothing reads.
"""


def write(lines: Iterable[Line], page: Path = PAGE) -> None:
    """Write the page, kinds in their order and faults in theirs."""
    order = list(KINDS)
    parts = [_HEAD]
    for kind, found in groupby(sorted(lines, key=lambda line: order.index(line.kind)), key=lambda line: line.kind):
        parts.append(f"\n## {KINDS[kind]}\n\n")
        parts.append("| fault | what is done | came to | whose failure | next | left |\n|---|---|---|---|---|---|\n")
        parts += [_row(line) for line in found]
    page.write_text("".join(parts), encoding="utf-8")


def _row(line: Line) -> str:
    came_to = f"{line.outcome}: `{line.reason}`" if line.reason else line.outcome
    left = "; ".join([*line.survivors, *(f"`{name}`" for name in line.files)]) or "nothing"
    cells = (f"`{line.name}`", line.what, came_to, line.owner or "nobody's", line.then, left)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
