"""Every kind of failure of field-notes B (d) and (e), with the stub engine: its reason, its class, and no number.

A note is named where its kind is shown. What cannot be shown here is shown elsewhere: D8 and D9 in
test_processes, D11 in test_layers, E8 to E11, E18 and E19 in test_leg and test_client.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders import ASKED, Results, put_text, raw_output
from tests.stubs.engine import FAULTS

from pinproof import bench, clocks, lease, leg, processes
from pinproof.bench import Bench
from pinproof.client import Client
from pinproof.legbook import FIRST, Legbook, LegId
from pinproof.reasons import Owner, Reason, Refusal
from pinproof.residents import Residents, wait_ready
from pinproof.server import Server, ServerSpec

STUBS = Path(__file__).parent / "stubs"
STUB = (sys.executable, "-S", str(STUBS / "engine.py"))
TARGET, INSTRUMENT, ENVIRONMENT, INPUT = Owner.TARGET, Owner.INSTRUMENT, Owner.ENVIRONMENT, Owner.INPUT

# note -> (faults, reason, class); of the pinned engine, before its first leg
STARTS = {
    "D1 a traceback, then the aftermath": ("exits-at-start", Reason.SERVER_EXITED, TARGET),
    "D1 killed from outside": ("killed", Reason.SERVER_KILLED, ENVIRONMENT),
    "D2 no cause in the log": ("exits-silently", Reason.SERVER_EXITED, TARGET),
    "D3 health says 200, no completion ends": ("hung-post", Reason.SERVER_STALLED, TARGET),
    "D6 the front leaves, the engine lives on": ("parent-exits", Reason.SERVER_TIMEOUT, INSTRUMENT),
    "D7 a limit of the engine's own": ("parent-exits bare-child", Reason.SERVER_TIMEOUT, INSTRUMENT),
    "D10 stopped from outside": ("stopped", Reason.SERVER_KILLED, ENVIRONMENT),
    "D12 a neighbour on the device": ("out-of-memory", Reason.SERVER_MEMORY, ENVIRONMENT),
    "D14 the engine is dead, the front waits": ("waits-after-traceback", Reason.SERVER_MEMORY, ENVIRONMENT),
    "E1 every request fails": ("error-500=1", Reason.REQUESTS_FAILED, TARGET),
    "E20 another model name": ("wrong-model", Reason.CONFIG_NOT_APPLIED, TARGET),
}
# note -> (faults, reason, class); the leg cannot be run to its end
ENDS = {
    "D4 no more tokens, all else is well": ("stalls", Reason.SERVER_STALLED, TARGET),
    "E3 the engine dies in mid-run": ("dies-mid-run", Reason.SERVER_EXITED, TARGET),
}
# note -> (faults, reason, class); the leg ends and does not count
LEGS = {
    "E4 some requests are lost": ("error-500=2", Reason.REQUESTS_FAILED, TARGET),
    "E7 no valid chunk, or a stream that is cut": ("cut-stream=2", Reason.REQUESTS_FAILED, TARGET),
    "E12 fewer tokens than asked": ("short-outputs=1", Reason.OUTPUT_SHORT, TARGET),
    "E13 prompts of another length": ("extra-prompt-tokens=1", Reason.INPUT_DIFFERS, TARGET),
    "E15 an empty prompt": ("fewer-prompt-tokens=16", Reason.INPUT_DIFFERS, TARGET),
    "E22 an error with status 200": ("error-200=2", Reason.REQUESTS_FAILED, TARGET),
    "rule 5, prompts from the cache": ("prefix-hits=1", Reason.PREFIX_HITS, INSTRUMENT),
    "rule 5, a kernel compiled inside": ("jit-line=1", Reason.COMPILED_IN_WINDOW, ENVIRONMENT),
    "rule 5, requests computed twice": ("preemptions=1", Reason.PREEMPTED, INPUT),
    "rule 5, the counters disagree": ("miscounts=1", Reason.METRICS_DISAGREE, INSTRUMENT),
}
# note -> (the client's output, reason, class): what a client writes whatever the server did
OUTPUTS = {
    "E1 zeros and exit status 0": (
        raw_output(completed=0, failed=2, output_lens=[0, 0], median_ttft_ms=0.0, output_throughput=0.0),
        Reason.REQUESTS_FAILED,
        TARGET,
    ),
    "E2 nothing listened": (
        raw_output(completed=0, failed=2, errors=["Cannot connect"] * 2),
        Reason.REQUESTS_FAILED,
        TARGET,
    ),
    "E3 completed without a token": (
        raw_output(output_lens=[0, 0], total_output_tokens=0),
        Reason.OUTPUT_SHORT,
        TARGET,
    ),
    "E5 failed is missing": (
        {key: value for key, value in raw_output(completed=1).items() if key != "failed"},
        Reason.REQUESTS_FAILED,
        TARGET,
    ),
    "E16 not a number": (raw_output(median_tpot_ms=None), Reason.METRIC_MISSING, INSTRUMENT),
    "E16 a negative time": (raw_output(median_tpot_ms=-0.3), Reason.METRIC_MISSING, INSTRUMENT),
}


class Stand:
    """One bench with stub servers, outside of the workflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = Results(folder).identities().surroundings()
        self.place = self.results.places.row("serving")
        self.book = Legbook(self.place.legs, self.place.row)
        package = folder / "package"
        shutil.copytree(STUBS / "package", package)
        (package / "vllm" / "_version.py").write_text('__version__ = "0.0.0+stub"\n')
        for index in range(2):
            lines = (json.dumps({"prompt": f"{index}{number}".ljust(16, "x")}) + "\n" for number in range(2))
            put_text(folder / "corpus" / f"s1-rep-c1-{index:02d}.jsonl", "".join(lines))

    def leg(self, faults: str, arm: str) -> dict:
        """Start a server of an arm with these faults, and run one leg on it."""
        run, spec = f"test-{os.getpid()}-{self.folder.name}", self._spec(faults)
        marker = f"{run}/.client/1"
        client = Client(
            Path(sys.executable),
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.folder / "package")},
            log=self.folder / "client.log",
            marker=marker,
        )
        row = self.place.row.model_copy(update={"stall_timeout_s": 1})
        place = Place(row, self.place)
        with (
            lease.held(self.folder / "lock", lease.Who("c", "r")) as held,
            Residents(lambda name, life: Server.start(spec, f"{run}/{name}/{life}"), held, together=False) as residents,
            client,
            clocks.watching(self.results.places.case.device, lambda: []) as eyes,
        ):
            residents.prepare = wait_ready
            client.wait_ready()
            stand = Bench(residents, client, eyes, self.folder / "corpus", self.folder, "device", held, {arm: {}})
            return bench.run_leg(stand, self.results.places, place, self.book, LegId(FIRST, "rep", "c1", 0, 0, arm))

    def _spec(self, faults: str) -> ServerSpec:
        return ServerSpec(
            argv=(*STUB, "--port", "{port}", "--model", "subject", *(f"--fault={one}" for one in faults.split())),
            env={"PATH": "/usr/bin:/bin"},
            model_name="subject",
            log=self.folder / "server.log",
            start_timeout_s=60,
            stall_timeout_s=1,
            grace_s=2,
            fatal_grace_s=0.3,
        )


class Place:
    """The place of a row that says something else."""

    def __init__(self, row: object, place: object) -> None:
        self.row, self._place = row, place

    def __getattr__(self, name: str) -> object:
        return getattr(self._place, name)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    monkeypatch.setattr(bench, "DYING_S", 0.5)
    monkeypatch.setattr(bench, "SETTLE_STEP_S", 0.02)
    yield Stand(tmp_path)
    assert processes._recorded() == {}


def failed(act: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        act()
    return refusal.value


def test_the_stand_gives_a_number_when_nothing_is_wrong(stand: Stand) -> None:
    record = stand.leg("", "oracle")
    assert (record["valid"], record["objections"]) == (True, [])
    assert record["metrics"]["median_tpot"] > 0


@pytest.mark.parametrize(("faults", "reason", "owner"), [*STARTS.values(), *ENDS.values()], ids=[*STARTS, *ENDS])
def test_an_engine_that_fails_gives_its_reason_and_no_leg(
    stand: Stand, faults: str, reason: Reason, owner: Owner
) -> None:
    refusal = failed(lambda: stand.leg(faults, "oracle"))
    assert (refusal.reason, refusal.reason.owner) == (reason, owner)
    assert stand.book.legs == []


@pytest.mark.parametrize(("faults", "reason", "owner"), LEGS.values(), ids=list(LEGS))
def test_a_leg_that_went_wrong_gives_its_reason_and_does_not_count(
    stand: Stand, faults: str, reason: Reason, owner: Owner
) -> None:
    record = stand.leg(faults, "oracle")
    assert not record["valid"]
    assert (record["objections"][0]["reason"], record["objections"][0]["owner"]) == (reason.code, owner)
    assert stand.book.ratios(FIRST, "c1", "output_throughput") == []


@pytest.mark.parametrize(("output", "reason", "owner"), OUTPUTS.values(), ids=list(OUTPUTS))
def test_what_a_client_writes_of_a_failure_is_no_number(output: dict, reason: Reason, owner: Owner) -> None:
    first = leg.objections(output, ASKED, {})[0]
    assert (first.reason, first.reason.owner) == (reason, owner)


@pytest.mark.parametrize(
    "text", ['{"completed": 2}\n{"completed": 2}', '{"completed": 2', "[]"], ids=["E17", "cut", "list"]
)
def test_a_file_that_is_not_one_result_is_the_client_s_failure(tmp_path: Path, text: str) -> None:
    put_text(tmp_path / "raw.json", text)
    assert failed(lambda: leg.read_raw(tmp_path / "raw.json")).reason is Reason.CLIENT_FAILED


@pytest.mark.parametrize("faults", ["exits-at-start", "stalls", "dies-mid-run"])
def test_an_arm_that_is_not_the_pin_never_fails_as_the_target(stand: Stand, faults: str) -> None:
    refusal = failed(lambda: stand.leg(faults, "previous"))
    assert (refusal.reason, refusal.reason.owner) == (Reason.REFERENCE_FAILED, INPUT)


def test_objections_to_a_leg_of_another_arm_are_not_the_target_s_either(stand: Stand) -> None:
    (objection, *_) = stand.leg("short-outputs=1", "previous")["objections"]
    assert (objection["reason"], objection["owner"]) == ("output-short", "input")


def test_a_lease_that_is_lost_during_a_leg_takes_the_leg_with_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Client.run

    def and_lose(self: Client, *arguments: object, **options: object) -> None:
        run(self, *arguments, **options)
        (stand.folder / "lock").unlink()

    monkeypatch.setattr(Client, "run", and_lose)
    refusal = failed(lambda: stand.leg("", "oracle"))
    assert (refusal.reason, refusal.reason.owner) == (Reason.LEASE_LOST, ENVIRONMENT)
    assert stand.book.legs == []


def test_the_faults_are_those_of_the_stub() -> None:
    used = {
        fault.split("=")[0]
        for table in (STARTS, ENDS, LEGS)
        for faults, *_ in table.values()
        for fault in faults.split()
    }
    assert used <= set(FAULTS)
