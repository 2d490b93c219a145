"""What the artifacts cost, and whether a changed byte is found: figures, not checks of this machine.

python tests/bench/bench_artifacts.py make CASE.yaml     archive of results that are there: time, size
python tests/bench/bench_artifacts.py verify ARCHIVE     time, and 100 random single-byte changes of its content
python tests/bench/bench_artifacts.py rows [NUMBER]      verdict and page over so many synthetic row results
"""

from __future__ import annotations

import io
import random
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import zstandard
from tests import builders

from pinproof import archive, case, ci, cli, layout, page, records, replay
from pinproof.reasons import Refusal

CHANGES, SEED = 100, 8


def make(file: str) -> None:
    """Archive the case's results into a temporary folder."""
    places = layout.Layout(case.load(Path(file)), Path(file), cli.ROOT)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "verdict.tar.zst"
        begun = time.perf_counter()
        index = archive.make(places, target)
        taken = time.perf_counter() - begun
        first = target.read_bytes()
        archive.make(places, target)
        same = "the same bytes" if target.read_bytes() == first else "OTHER BYTES"
        unpacked = sum(one["bytes"] for one in index["files"].values())
    print(f"archive: {taken:.2f} s, verified within; {len(first)} bytes of {unpacked}, {len(index['files'])} files")
    print(f"a second time: {same}")


def verify(file: str) -> None:
    """Verify an archive, then once for every changed byte."""
    begun = time.perf_counter()
    found = replay.verify(Path(file))
    print(f"verify: {time.perf_counter() - begun:.2f} s; {found}")
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(Path(file).read_bytes())).read()
    with tarfile.open(fileobj=io.BytesIO(stream)) as packed:
        spans = [(one.name, one.offset_data, one.offset_data + one.size) for one in packed if one.size]
    draw, ends = random.Random(SEED), Counter()
    sizes = [end - start for _, start, end in spans]
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "changed.tar.zst"
        for _ in range(CHANGES):
            ((name, start, end),) = draw.choices(spans, sizes)
            other = bytearray(stream)
            other[draw.randrange(start, end)] ^= draw.randrange(1, 256)
            changed.write_bytes(zstandard.compress(bytes(other), 1))
            ends[_found(changed, name)] += 1
    print(f"{CHANGES} single-byte changes of the content: {dict(ends)}")


def _found(changed: Path, name: str) -> str:
    try:
        replay.verify(changed)
    except Refusal as refusal:
        named = refusal.key == name or (name.startswith("index.json") and refusal.key == "index.json")
        return "found, file named" if named else f"found, {refusal.key} named for {name}"
    return f"NOT FOUND in {name}"


def rows(number: str = "1000") -> None:
    """A verdict and its pages over many row results that are on disk."""
    row = builders.case_value()["rows"][0]
    with tempfile.TemporaryDirectory() as folder:
        every = [{**row, "id": f"row-{count:04d}"} for count in range(int(number))]
        made = builders.measured(Path(folder), {"rows": every})
        made.state({"rows": every})  # nothing is remembered of what was made
        begun = time.perf_counter()
        verdict = made.verdict()
        judged = time.perf_counter()
        text = page.of(verdict)
        print(f"{number} row results: verdict {judged - begun:.2f} s, page {time.perf_counter() - judged:.2f} s")
        print(f"page: {len(text)} characters, verdict.json: {len(records.text('verdict', verdict))}")
        print(f"comment: {len(ci.comment(verdict))} characters, JUnit: {len(ci.junit(verdict))}")


if __name__ == "__main__":
    {"make": make, "verify": verify, "rows": rows}[sys.argv[1]](*sys.argv[2:])
