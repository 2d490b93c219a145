"""Caches of a start: set as the row says, and seen to be set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pinproof import caches
from pinproof.caches import Cabinet, Pages
from pinproof.case import CACHE_VARIABLES
from pinproof.claims import Caches

FRESH = Caches(page="warm", compile="fresh", jit="fresh")
WARM = Caches(page="warm", compile="warm", jit="warm")


def engine(cabinet: Cabinet, text: str = "a graph") -> None:
    """What a start leaves in its compile cache."""
    folder = Path(cabinet.environment()["VLLM_CACHE_ROOT"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph").write_text(text)


def test_every_place_of_a_cache_lies_in_the_cabinet_of_its_arm(tmp_path: Path) -> None:
    found = Cabinet(tmp_path / "oracle").environment()
    assert set(found) == set(CACHE_VARIABLES)
    assert len(set(found.values())) == len(found)
    assert all(Path(place).is_relative_to(tmp_path / "oracle") for place in found.values())


def test_a_fresh_cache_is_empty_whatever_was_there(tmp_path: Path) -> None:
    cabinet = Cabinet(tmp_path)
    cabinet.set(FRESH)
    engine(cabinet)
    cabinet.set(FRESH)
    assert cabinet.state()["compile"]["files"] == 0


def test_every_warm_start_finds_what_the_first_life_left_and_nothing_of_the_lives_between(tmp_path: Path) -> None:
    cabinet = Cabinet(tmp_path)
    cabinet.set(FRESH)
    engine(cabinet)
    kept = cabinet.state()
    cabinet.keep()
    for _ in range(2):
        cabinet.set(WARM)
        assert cabinet.state() == kept
        engine(cabinet, "another graph")
        assert cabinet.state()["compile"]["digest"] != kept["compile"]["digest"]


def test_one_kind_can_be_warm_and_the_other_fresh(tmp_path: Path) -> None:
    cabinet = Cabinet(tmp_path)
    cabinet.set(FRESH)
    engine(cabinet)
    (Path(cabinet.environment()["TRITON_CACHE_DIR"])).mkdir(parents=True)
    (Path(cabinet.environment()["TRITON_CACHE_DIR"]) / "kernel").write_text("x")
    cabinet.keep()
    cabinet.set(Caches(page="warm", compile="fresh", jit="warm"))
    assert {kind: one["files"] for kind, one in cabinet.state().items()} == {"compile": 0, "jit": 1}


def test_times_change_no_digest_and_names_and_contents_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = caches.state(tmp_path)
    os.utime(tmp_path / "a", (0, 0))
    assert caches.state(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert caches.state(tmp_path)["digest"] != before["digest"]


def test_pages_are_read_in_and_counted(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    (tmp_path / "small").write_bytes(b"x")
    pages = Pages([tmp_path])
    pages.set("warm")
    assert pages.state() == {"files": 1, "bytes": 1 << 20, "resident": 1.0}


def test_pages_that_the_kernel_drops_on_advice_are_counted_as_dropped(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(4 << 20))
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    pages = Pages([tmp_path])
    pages.set("dropped")
    share = pages.state()["resident"]
    if share == 1.0:
        pytest.skip("this file system lies in memory itself")
    assert share <= caches.DROPPED


# -- a state that is not what the row asks for ---------------------------------------------------


def before(compile: int = 0, jit: int = 0, resident: float | None = 1.0) -> dict[str, Any]:
    return {"compile": {"files": compile}, "jit": {"files": jit}, "page": {"resident": resident}}


@pytest.mark.parametrize(
    ("wanted", "had", "left", "words"),
    [
        (FRESH, before(), before(3, 1), None),
        (FRESH, before(2), before(2), "the compile cache held 2 files and was to be fresh"),
        (WARM, before(2, 1), before(2, 1), None),
        (WARM, before(2, 0), before(2, 0), None),  # nothing that could be kept
        (WARM, before(0, 0), before(0, 0), "a cold start: the compile cache held nothing and was to be warm"),
        (WARM, before(2, 0), before(2, 4), "a cold start: the jit cache held nothing and was to be warm"),
        (WARM, before(2, 1, 0.5), before(2, 1), "50% of the files' pages were in memory and were to be warm"),
        (WARM, before(2, 1, None), before(2, 1), "the kernel does not tell what the page cache holds"),
    ],
)
def test_what_a_start_found_is_held_against_what_it_was_to_find(
    wanted: Caches, had: dict[str, Any], left: dict[str, Any], words: str | None
) -> None:
    assert caches.differences(wanted, had, left) == ([] if words is None else [words])


def test_pages_that_stayed_where_they_were_to_be_dropped_are_told() -> None:
    wanted = Caches(page="dropped", compile="fresh", jit="fresh")
    assert caches.differences(wanted, before(), before()) == [
        "100% of the files' pages were in memory and were to be dropped"
    ]
    assert caches.differences(wanted, before(resident=0.02), before()) == []
