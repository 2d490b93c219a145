"""Sampling: statistics over all samples of a window, and unknown where nothing was read."""

import itertools
import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.test_device import FakeError, FakeNvml, gb10, h200

from pinproof.nvml import Nvml
from pinproof.reasons import Reason, Refusal
from pinproof.sampling import (
    CpuSource,
    Load,
    NvidiaSource,
    Sample,
    Sampler,
    cpu_mhz,
    cpu_share,
    load,
    probe_load,
    require_quiet,
    save,
    summary,
)

Times = namedtuple("Times", "user nice system idle iowait steal guest")
BURN = [sys.executable, "-c", "while True: pass"]


def series(count: int, **values: float | None) -> list[Sample]:
    """One sample every half second, the first at 0.5 s."""
    return [Sample(t=0.5 * (n + 1), seconds=0.5, **values) for n in range(count)]


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as error:
        call()
    return error.value


@pytest.fixture
def burner() -> Iterator[int]:
    """A process that uses a core, by its pid."""
    process = subprocess.Popen(BURN)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_an_empty_window_knows_nothing() -> None:
    found = summary([], 0, 10)
    assert (found.samples, found.busy_samples, found.covered, found.longest_gap_s) == (0, 0, 0, 10)
    assert found.busy_fraction is found.clock_mhz is found.work is found.cpu_steal is found.throttle is None


def test_unknown_stays_unknown_and_zero_stays_zero() -> None:
    found = summary(series(4, work=1.0, cpu_steal=0.0), 0, 2)
    assert found.cpu_steal == 0
    assert found.cpu_others is found.cpu_others_maximum is found.clock_mhz is found.memory_available_minimum is None


def test_only_samples_of_the_window_count() -> None:
    samples = [*series(4, work=1.0, clock_mhz=1000.0), Sample(t=9.0, seconds=0.5, work=1.0, clock_mhz=10.0)]
    found = summary(samples, 0.5, 2.0)
    assert (found.samples, found.clock_mhz.minimum) == (3, 1000)


def test_coverage_shows_a_sampler_that_hardly_ran() -> None:
    full, thin = summary(series(20, work=1.0), 0, 10), summary(series(20, work=1.0)[:1], 0, 10)
    assert (full.covered, full.longest_gap_s) == (1.0, 0.5)
    assert (thin.covered, thin.longest_gap_s) == (0.05, 9.5)


def test_one_busy_sample_of_many_is_seen_as_such() -> None:
    idle = series(300, work=0.0, clock_mhz=300.0)
    found = summary([*idle, Sample(t=150.5, seconds=0.5, work=1.0, clock_mhz=2000.0)], 0, 151)
    assert (found.samples, found.busy_samples) == (301, 1)
    assert found.busy_fraction == pytest.approx(1 / 301)
    assert (found.clock_mhz.n, found.clock_mhz.spread) == (1, 0)


def test_a_sample_whose_work_is_unknown_is_not_busy() -> None:
    assert summary(series(4, clock_mhz=1000.0), 0, 2).busy_samples == 0


def test_clocks_are_those_of_busy_samples() -> None:
    samples = [*series(3, work=1.0, clock_mhz=2000.0), Sample(t=2.0, seconds=0.5, work=0.0, clock_mhz=300.0)]
    assert summary(samples, 0, 2).clock_mhz.minimum == 2000


def test_an_excursion_shows_in_spread_and_mean_though_not_in_the_median() -> None:
    samples = series(100, work=1.0, clock_mhz=2000.0)
    samples[50] = Sample(t=samples[50].t, seconds=0.5, work=1.0, clock_mhz=1500.0)
    clock = summary(samples, 0, 50).clock_mhz
    assert (clock.median, clock.mean, clock.spread) == (2000, 1995, 0.25)


def test_shares_are_means_over_time() -> None:
    samples = [Sample(t=1.0, seconds=1.0, cpu_others=0.0), Sample(t=4.0, seconds=3.0, cpu_others=0.4)]
    found = summary(samples, 0, 4)
    assert found.cpu_others == pytest.approx(0.3)
    assert found.cpu_others_maximum == 0.4


def test_throttle_reasons_are_counted_over_all_samples() -> None:
    samples = series(63, work=1.0, throttle=0)
    samples[5] = Sample(t=samples[5].t, seconds=0.5, work=0.0, throttle=0x20 | 0x4)
    assert summary(samples, 0, 40).throttle == {"sw-power-cap": 1, "sw-thermal": 1}
    assert summary(series(3, throttle=0), 0, 2).throttle == {}


def test_a_summary_is_json_with_its_spreads() -> None:
    record = summary(series(4, work=1.0, clock_mhz=1000.0, throttle=1), 0, 2).as_record()
    assert record["clock_mhz"]["spread"] == 0
    assert record["power_w"] is None
    assert record["throttle"] == {"idle": 4}


def test_samples_are_saved_whole_and_read_back(tmp_path: Path) -> None:
    samples = series(5, work=0.5, clock_mhz=None, throttle=3)
    save(tmp_path / "samples.jsonl", samples)
    assert load(tmp_path / "samples.jsonl") == samples


def test_samples_that_are_not_there_or_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    assert refusal(lambda: load(path)).reason is Reason.RECORD_MISSING
    save(path, series(2))
    path.write_text(path.read_text()[:-20])
    assert refusal(lambda: load(path)).reason is Reason.RECORD_DAMAGED


def test_the_sampler_reads_at_its_period_until_it_is_left() -> None:
    with Sampler(lambda: Sample(t=time.monotonic(), seconds=0.02), period_s=0.02) as sampler:
        time.sleep(0.5)
    count = len(sampler.samples)
    assert 5 <= count <= 26
    time.sleep(0.06)
    assert len(sampler.samples) == count


def test_a_reading_that_fails_is_a_gap_with_its_text_not_the_end() -> None:
    answers = iter([Sample(t=1.0, seconds=1.0), OSError("lost"), OSError("lost"), Sample(t=2.0, seconds=1.0)])

    def read() -> Sample:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Sampler(read, period_s=0.01) as sampler:
        time.sleep(0.3)
    assert [sample.t for sample in sampler.samples] == [1.0, 2.0]
    assert sampler.errors["OSError: lost"] == 2


def test_late_ticks_are_not_made_up_for() -> None:
    times: list[float] = []

    def slow() -> Sample:
        times.append(time.monotonic())
        time.sleep(0.1 if len(times) == 1 else 0)
        return Sample(t=times[-1], seconds=0.05)

    with Sampler(slow, period_s=0.05):
        time.sleep(0.4)
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.02


def test_work_of_our_processes_is_told_from_that_of_others(burner: int) -> None:
    ours, others = CpuSource(lambda: [burner]), CpuSource(list)
    time.sleep(0.8)
    mine, foreign = ours(), others()
    assert mine.work > 5 * foreign.work
    assert mine.cpu_others < foreign.cpu_others
    assert mine.cpu_busy == pytest.approx(mine.work + mine.cpu_others)


def test_where_nobody_is_known_to_be_ours_the_share_of_others_is_unknown() -> None:
    source = CpuSource()
    time.sleep(0.05)
    sample = source()
    assert sample.cpu_others is None
    assert sample.work == sample.cpu_busy
    assert sample.memory_available > 0


def test_a_process_that_begins_during_sampling_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    source = CpuSource(lambda: pids)
    process = subprocess.Popen(BURN)
    pids.append(process.pid)
    try:
        time.sleep(0.5)
        monkeypatch.setattr(source, "_next_search", 0.0)
        assert source().work > 0.04 / os.cpu_count()
    finally:
        process.kill()
        process.wait()


def test_sampling_is_light() -> None:
    source = CpuSource(list)
    begin = time.thread_time()
    for _ in range(50):
        source()
    assert (time.thread_time() - begin) / 50 < 0.005


def test_an_nvidia_sample_holds_the_device_and_its_host() -> None:
    sample = NvidiaSource(Nvml(FakeNvml(h200())), 0)()
    assert (sample.work, sample.clock_mhz, sample.memory_clock_mhz, sample.throttle) == (0.99, 1440, 3201, 4)
    assert (sample.power_w, sample.temperature_c) == (694.088, 60)
    assert sample.cpu_busy is not None


def test_what_the_nvidia_device_does_not_tell_is_unknown() -> None:
    sample = NvidiaSource(Nvml(FakeNvml(gb10())), 0)()
    assert sample.clock_mhz == 2184
    assert sample.work is sample.power_w is sample.throttle is None


def test_a_device_that_is_lost_leaves_a_gap() -> None:
    source = NvidiaSource(Nvml(FakeNvml(h200(PowerUsage=FakeError(15)))), 0)
    with Sampler(source, period_s=0.01) as sampler:
        time.sleep(0.1)
    assert sampler.samples == []
    assert "device-broken" in next(iter(sampler.errors))


def test_stolen_time_is_neither_busy_nor_idle() -> None:
    before = Times(user=0, nice=0, system=0, idle=0, iowait=0, steal=0, guest=0)
    after = Times(user=3, nice=0, system=1, idle=3, iowait=1, steal=2, guest=3)
    assert cpu_share(before, after) == (0.4, 0.2, 10)
    assert cpu_share(before, before)[0] == 0


def test_a_system_that_does_not_count_stolen_time_leaves_it_unknown() -> None:
    times = namedtuple("Times", "user idle")
    assert cpu_share(times(0, 0), times(1, 1)) == (0.5, None, 2)


def test_the_clock_is_that_of_the_fastest_core_and_unknown_where_it_is_not_governed(tmp_path: Path) -> None:
    assert cpu_mhz(tmp_path) is None
    for core, kilohertz in enumerate(("1500000\n", "3900000\n", "<unknown>\n")):
        path = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        path.parent.mkdir(parents=True)
        path.write_text(kilohertz)
    assert cpu_mhz(tmp_path) == 3900


def test_load_of_others_is_found_and_named(burner: str) -> None:
    found = probe_load(0.5)
    assert found.others > 0.1 / os.cpu_count()
    assert any(name.startswith("python") for _, name, _ in found.busiest)
    assert found.runnable >= 1


def test_a_busy_machine_is_refused_by_the_names_of_the_busy() -> None:
    busy = Load(others=0.31, steal=None, runnable=4, busiest=((71, "cc1plus", 0.3),))
    error = refusal(lambda: require_quiet(busy, 0.1))
    assert error.reason is Reason.DEVICE_BUSY
    assert "cc1plus (pid 71, 30%)" in error.message
    require_quiet(busy, 0.5)
    unseen = Load(others=0.31, steal=None, runnable=None, busiest=())
    assert "none that can be seen" in refusal(lambda: require_quiet(unseen, 0.1)).message
