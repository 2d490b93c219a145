"""The report: one file, opened without a network in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.stubs.workflow import Workplace

pytestmark = pytest.mark.workflow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What a page loads by itself; a link that a person may follow is none of it.
_LOADS = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)", re.I)


@pytest.fixture(scope="module")
def written(whole_run: tuple[Workplace, object], tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A copy of the whole run with its report."""
    place = whole_run[0].copy(tmp_path_factory.mktemp("report") / "finished")
    call = place.run("report")
    assert call.status == 0, call.output
    return place


def test_the_report_holds_the_page_and_a_figure_of_every_kind(written: Workplace) -> None:
    folder = written.results / "stub"
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "serving-reps.svg",
        "serving-noise.svg",
        "serving-machine.svg",
    }
    text = (folder / "report.html").read_text(encoding="utf-8")
    for name in ("verdict.html", "serving-reps.svg", "serving-noise.svg", "serving-machine.svg"):
        assert name in text
    assert written.plan("report") == {}


def test_the_report_loads_nothing_from_elsewhere(written: Workplace) -> None:
    assert _LOADS.findall((written.results / "stub" / "report.html").read_text(encoding="utf-8")) == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_without_a_network_shows_it(written: Workplace, tmp_path: Path) -> None:
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--window-size=1400,1000"]
    page = (written.results / "stub" / "report.html").as_uri()
    shot = tmp_path / "report.png"
    shown = subprocess.run(
        [BROWSER, *words, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True
    )
    told = re.sub(r"<script.*?</script>", "", shown.stdout, flags=re.DOTALL)
    for word in ("Does the pin hold?", "Verdict", "Rows"):
        assert word in told
    subprocess.run([BROWSER, *words, f"--screenshot={shot}", page], capture_output=True, timeout=120, check=True)
    assert shot.stat().st_size > 20_000  # bytes; an empty page takes 6,363
