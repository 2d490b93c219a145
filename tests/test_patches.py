"""Patches of the pin's block: they apply with git to the user's own repository, and nothing else changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.builders import put, refusal_of
from tests.stubs.workflow import Workplace

from pinproof import corrections, history, patches, pin
from pinproof.case import Case, parse
from pinproof.layout import Layout
from pinproof.pin import read_pin
from pinproof.reasons import Reason

OLD, NEW = "5" * 40, "e" * 40
WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


def block(commit: str, suffix: str = "", more: str = "") -> str:
    version = f"0.28.1+g{commit[:9]}"
    return (
        f"```parity-pin\nvllm_commit = {commit}\nvllm_runtime_version = {version}\n"
        f"vllm_distribution_version = {version}{suffix}\n{more}```\n"
    )


class Repository:
    """A user's repository with one page that holds the block."""

    def __init__(self, root: Path, path: str = "docs/sync page.md") -> None:
        self.root, self.page = root, root / path
        self.page.parent.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run(["git", *WHO, *words], cwd=self.root, check=check, capture_output=True, text=True)

    def write(self, text: str, prose: str = "prose", end: str = "\n") -> Path:
        self.page.write_bytes(f"# Sync\n\n{text}\n{prose}\n".replace("\n", end).encode())
        return self.page

    def commit(self, subject: str) -> str:
        self.git("add", ".")
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD").stdout.strip()

    def takes(self, patch: str) -> None:
        """`git apply` accepts the patch, and applies it."""
        file = self.root.parent / "the.patch"
        file.write_bytes(patch.encode())
        checked = self.git("apply", "--check", str(file), check=False)
        assert checked.returncode == 0, checked.stderr
        self.git("apply", str(file))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """The block was OLD, then NEW; prose changed in between and after."""
    made = Repository(tmp_path / "repository")
    made.write(block(OLD))
    made.commit("a pin")
    made.write(block(OLD), "other prose")
    made.commit("prose")
    made.write(block(NEW), "other prose")
    made.advance = made.commit("advance the pin, at last")
    made.write(block(NEW), "more prose")
    made.commit("prose again")
    return made


# -- the history of a block ----------------------------------------------------------------------


def test_the_commit_that_changed_the_block_is_the_advance_whatever_prose_came_after(repository: Repository) -> None:
    found = history.advance(repository.page)
    assert (found.commit, found.subject) == (repository.advance, "advance the pin, at last")
    assert found.before.vllm_commit == OLD


def test_a_change_that_is_not_committed_is_the_advance(repository: Repository) -> None:
    repository.write(block("a" * 40))
    found = history.advance(repository.page)
    assert (found.commit, found.before.vllm_commit) == (None, NEW)
    assert found.words == "a change that is not committed yet"


def test_a_block_that_could_not_be_read_for_a_while_is_passed_over(repository: Repository) -> None:
    repository.write("no block\n")
    repository.commit("broken")
    repository.write(block(NEW))
    mended = repository.commit("mended")
    found = history.advance(repository.page)
    assert found.before.vllm_commit == OLD
    assert found.commit == repository.advance != mended


def test_a_block_that_never_changed_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository")
    made.write(block(OLD))
    made.commit("a pin")
    refusal = refusal_of(history.advance, made.page)
    assert (refusal.reason, refusal.message) == (
        Reason.PIN_INVALID,
        "its history holds no other block than the one that it has now",
    )


def test_a_page_in_no_checkout_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(block(OLD))
    assert refusal_of(history.page, page).reason is Reason.PIN_INVALID


def test_settings_of_the_caller_do_not_lead_git_elsewhere(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert history.page(repository.page).path == "docs/sync page.md"


# -- the revert ----------------------------------------------------------------------------------


def test_a_revert_takes_the_block_back_names_the_advance_and_leaves_the_prose(repository: Repository) -> None:
    patch = patches.revert(repository.page, None)
    assert f"takes back the advance {repository.advance}" in patch
    assert "(advance the pin, at last)" in patch
    assert f"  vllm_commit: {NEW} -> {OLD}\n" in patch
    repository.takes(patch)
    assert read_pin(repository.page).vllm_commit == OLD
    assert repository.page.read_text().endswith("more prose\n")


def test_a_revert_is_only_written(repository: Repository) -> None:
    before = repository.page.read_bytes()
    patches.revert(repository.page, None)
    assert repository.page.read_bytes() == before
    assert repository.git("status", "--porcelain").stdout == ""


def test_a_revert_takes_fields_away_and_brings_them_back(repository: Repository) -> None:
    repository.write(block("a" * 40, more="build_mode = source\n# a comment\ntorch_version = 2.13.0\n"))
    repository.commit("advance with more fields")
    repository.takes(patches.revert(repository.page, None))
    assert dict(read_pin(repository.page).fields) == dict(pin.parse_pin(block(NEW)).fields)
    assert "# a comment" in repository.page.read_text()
    repository.commit("taken back")
    repository.takes(patches.revert(repository.page, None))
    assert read_pin(repository.page).torch_version == "2.13.0"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_revert_keeps_the_line_ends_of_the_page(tmp_path: Path, end: str) -> None:
    made = Repository(tmp_path / "repository")
    made.write(block(OLD, more="build_mode = source\n"), end=end)
    made.commit("a pin")
    made.write(block(NEW), end=end)
    made.commit("the advance")
    made.takes(patches.revert(made.page, None))
    assert made.page.read_bytes().count(end.encode()) == made.page.read_bytes().count(b"\n") == 10


def test_a_revert_to_a_named_pin_says_whether_the_history_agrees(repository: Repository, tmp_path: Path) -> None:
    named = tmp_path / "before.md"
    named.write_text(block(OLD))
    assert f"takes back the advance {repository.advance}" in patches.revert(repository.page, named)
    named.write_text(block("c" * 40))
    patch = patches.revert(repository.page, named)
    assert "goes back to the block of before.md. The last change of the page's block" in patch
    repository.takes(patch)
    assert read_pin(repository.page).vllm_commit == "c" * 40


def test_a_revert_to_a_named_pin_needs_no_history_of_the_block(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository", "page.md")
    made.write(block(NEW))
    made.commit("a pin")
    named = tmp_path / "before.md"
    named.write_text(block(OLD))
    patch = patches.revert(made.page, named)
    assert "no commit of the page made this advance" in patch
    made.takes(patch)
    named.write_text(block(OLD))
    assert "already declares" in refusal_of(patches.revert, made.page, named).message


def test_a_page_without_a_last_line_end_is_patched(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository", "page.md")
    for commit in (OLD, NEW):
        made.page.write_text(block(commit).rstrip("\n"))
        made.commit(commit[:9])
    made.takes(patches.revert(made.page, None))
    assert read_pin(made.page).vllm_commit == OLD


# -- the correction ------------------------------------------------------------------------------


def layout(repository: Repository, tmp_path: Path) -> Layout:
    from tests.builders import FILE, case_value, put_text

    value = case_value({"arms.oracle.pin": str(repository.page), "arms.previous.pin": str(repository.page)})
    stated: Case = parse(value, FILE)
    for arm in stated.arms.values():
        put_text(tmp_path / arm.engine.locks["index"], "x==1 --hash=sha256:00\n")
    return Layout(stated, FILE, tmp_path, tmp_path / "results")


def foretold(places: Layout, version: str) -> None:
    for name in places.case.arms:
        body = {"version": version, "module_version": version, "commit": None, "requires_dist": []}
        put(places.engine(name).metadata, "metadata", body)


def test_a_correction_is_known_before_anything_is_built_and_applies(repository: Repository, tmp_path: Path) -> None:
    repository.write(block(NEW, ".precompiled"))
    repository.commit("as first declared")
    places = layout(repository, tmp_path)
    foretold(places, f"0.28.1+g{NEW[:9]}")
    patch = corrections.of(places)
    assert patch.count("Correction of") == 1  # both arms have the same page
    assert "docs/sync page.md" in patch
    repository.takes(patch)
    assert read_pin(repository.page).vllm_distribution_version == f"0.28.1+g{NEW[:9]}"


def test_where_nothing_differs_there_is_nothing_to_correct(repository: Repository, tmp_path: Path) -> None:
    places = layout(repository, tmp_path)
    foretold(places, f"0.28.1+g{NEW[:9]}")
    assert corrections.of(places) == corrections.NOTHING


def test_a_correction_of_a_page_in_no_checkout_is_refused(repository: Repository, tmp_path: Path) -> None:
    places = layout(repository, tmp_path)
    foretold(places, f"0.28.1+g{NEW[:9]}.precompiled")
    (repository.root / ".git").rename(repository.root / "git")
    assert refusal_of(corrections.of, places).reason is Reason.PIN_INVALID


# -- the targets ---------------------------------------------------------------------------------


@pytest.mark.workflow
def test_a_call_writes_the_correction_or_that_there_is_none(fresh: Workplace) -> None:
    call = fresh.run("correction")
    assert call.status == 0, call.output
    assert (fresh.results / "stub" / "correction.patch").read_text() == corrections.NOTHING


@pytest.mark.workflow
def test_a_call_writes_the_revert_of_a_pin_and_refuses_that_of_a_candidate(
    fresh: Workplace, repository: Repository
) -> None:
    call = fresh.run("revert")
    assert (call.status, "there is no advance to take back" in call.output) == (1, True)

    def advanced(value: dict) -> None:
        value["advance"] = "pinned"
        value["arms"]["oracle"]["pin"] = str(repository.page)

    fresh.edit(advanced)
    call = fresh.run("revert")
    assert call.status == 0, call.output
    repository.takes((fresh.results / "stub" / "revert.patch").read_text())
    assert read_pin(repository.page).vllm_commit == OLD
