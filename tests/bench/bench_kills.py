"""A series that is killed at random moments, twenty times over: what is left, and what the next call says.

Stub engines, the real workflow. Every kill is SIGKILL of the script that measures, at a moment drawn
from the seed (printed); the next call must find the survivors, count no partial leg and go on. After
the last kill a call runs undisturbed and must end in a verdict.

    python tests/bench/bench_kills.py [--seed N] [--kills N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[2])]

import psutil  # noqa: E402
from tests.stubs.workflow import Material, Workplace, marked  # noqa: E402

SERIES_S = 12.0  # about how long an undisturbed series takes; a moment beyond its end kills nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="pinproof-kills-") as folder:
        bad = run(Path(folder), random.Random(arguments.seed), arguments.kills)
    sys.exit(1 if bad else 0)


def run(folder: Path, draw: random.Random, kills: int) -> int:
    """All kills and the last call; the number of findings."""
    material = Material(folder / "material")
    material.folder.mkdir()
    place = Workplace(folder / "place", material.make()).write(material.case())
    first = place.run("verdict")
    assert first.status == 0, first.output
    shutil.rmtree(place.measured[-1])
    bad, done = 0, 0
    while done < kills:
        moment, before = draw.uniform(0, SERIES_S), whole_pairs(place.legs)
        killed = kill(place, moment)
        if not killed:  # it was over before: begin anew
            shutil.rmtree(place.measured[-1])
            continue
        done += 1
        wrong = partial(place)
        lost = [name for name, leg in before.items() if place.legs.get(name, leg) != leg]
        bad += len(wrong) + len(lost)
        print(f"kill {done:2}: {moment:5.2f} s, {len(place.legs):2} legs, partial {wrong}, rewritten {lost}")
    last = place.run("verdict")
    left = marked(material)
    verdict = place.verdict["verdict"] if last.status == 0 else f"status {last.status}"
    print(f"the next call: {verdict} in {last.seconds:.0f} s; processes left: {left or 'none'}")
    for pid in left:
        psutil.Process(pid).kill()
    return bad + len(left) + (last.status != 0) + len(partial(place))


def kill(place: Workplace, moment: float) -> bool:
    """Call the workflow, and kill what measures so many seconds after it began; whether it still ran."""
    call = place.start("verdict")
    while not (script := measuring(call)):
        if call.status is not None:
            return False
        time.sleep(0.02)
    end = time.monotonic() + moment
    while time.monotonic() < end and script.is_running() and script.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    with contextlib.suppress(psutil.NoSuchProcess):
        script.send_signal(signal.SIGKILL)
    return call.wait().status != 0


def whole_pairs(legs: dict[str, bytes]) -> dict[str, bytes]:
    """Legs whose pair is complete; the next call sets a lone one aside and takes its place again."""
    pairs = Counter(name.rsplit("-", 2)[0] for name in legs)
    return {name: leg for name, leg in legs.items() if pairs[name.rsplit("-", 2)[0]] == 2}


def measuring(call: object) -> psutil.Process | None:
    """The process of the script that measures, once there is one."""
    try:
        return call.script("measure_row")
    except (ValueError, psutil.Error):
        return None


def partial(place: Workplace) -> list[str]:
    """Legs on disk that are not whole."""
    wrong = []
    for name, text in place.legs.items():
        try:
            json.loads(text)["raw_sha256"]
        except (ValueError, KeyError):
            wrong.append(name)
    return wrong


if __name__ == "__main__":
    main()
