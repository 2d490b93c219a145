"""Source trees: facts of clones, bundles and released archives, and the refusals with what mends them."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests import fixture_project as fixture

from pinproof import source
from pinproof.reasons import Reason, Refusal


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone that is as it should be; not to be changed."""
    return fixture.project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    subprocess.run(["cp", "-a", made, tmp_path / "project"], check=True)
    return tmp_path / "project"


def refused(tree: Path, **said: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        source.require_sound(source.facts(tree), tree, **said)
    return caught.value


# -- a clone -------------------------------------------------------------------------------------


def test_a_clone_tells_commit_tree_describe_shallow_revisions_clean_and_tags(made: Path) -> None:
    facts = source.facts(made)
    commit = fixture.git(made, "rev-parse", "HEAD")
    assert facts.as_record() == {
        "kind": "clone",
        "commit": commit,
        "tree": fixture.git(made, "rev-parse", "HEAD^{tree}"),
        "describe": f"v0.29.0-2-g{commit[:9]}",
        "nearest": f"v0.29.0-2-g{commit[:9]}",
        "version_tags_only": False,
        "shallow": False,
        "revisions": 3,
        "clean": True,
        "changed": (),
        "untracked": 0,
        "tags": ("v0.29.0",),
        "name": None,
        "version": None,
        "commit_id": None,
        "sha256": None,
    }
    source.require_sound(facts, made, commit=commit)


def test_a_revision_that_is_not_checked_out_has_facts_too_but_nobody_knows_whether_it_is_clean(made: Path) -> None:
    facts = source.facts(made, revision="v0.29.0")
    assert (facts.describe, facts.revisions, facts.clean, facts.untracked) == ("v0.29.0", 1, None, None)


def test_another_commit_than_the_declared_one_is_refused(made: Path) -> None:
    refusal = refused(made, commit="e" * 40)
    assert refusal.reason is Reason.SOURCE_INVALID
    assert "the case declares eeee" in refusal.message


def test_a_commit_that_the_clone_does_not_have_is_refused(made: Path) -> None:
    with pytest.raises(Refusal, match="has no commit e126687a9") as caught:
        source.facts(made, revision="e126687a9a828d513c01a07cd69f025f27d63280")
    assert caught.value.reason is Reason.SOURCE_INVALID


def test_a_shallow_clone_is_refused_with_the_command_that_deepens_it(made: Path, tmp_path: Path) -> None:
    shallow = fixture.shallow(made, tmp_path / "shallow")
    refusal = refused(shallow)
    assert source.facts(shallow).revisions == 1
    assert refusal.reason is Reason.SOURCE_SHALLOW
    assert f"git -C {shallow} fetch --unshallow --tags" in refusal.message


def test_a_shallow_clone_is_refused_even_where_the_tag_is_at_hand(made: Path, tmp_path: Path) -> None:
    fixture.git(made, "clone", "--quiet", "--depth=1", "--branch=v0.29.0", f"file://{made}", str(tmp_path / "shallow"))
    assert source.facts(tmp_path / "shallow").describe == "v0.29.0"
    assert refused(tmp_path / "shallow").reason is Reason.SOURCE_SHALLOW


def test_a_clone_without_tags_is_refused_with_the_version_it_would_invent(made: Path, tmp_path: Path) -> None:
    fixture.git(made, "clone", "--quiet", "--no-tags", str(made), str(tmp_path / "untagged"))
    refusal = refused(tmp_path / "untagged")
    assert refusal.reason is Reason.SOURCE_UNTAGGED
    assert "0.1.dev3" in refusal.message
    assert f"git -C {tmp_path / 'untagged'} fetch --tags" in refusal.message


def test_a_deep_history_is_no_sign_of_a_tag(tree: Path) -> None:
    fixture.git(tree, "tag", "--delete", "v0.29.0")
    fixture.git(tree, "tag", "nightly")
    refusal = refused(tree)
    assert refusal.reason is Reason.SOURCE_UNTAGGED
    assert "tags: nightly" in refusal.message


def test_a_foreign_tag_that_is_nearer_is_refused_with_its_name(tree: Path) -> None:
    fixture.git(tree, "tag", "proto-v0.3.0")
    facts = source.facts(tree)
    assert (facts.nearest, facts.tags) == ("proto-v0.3.0", ("proto-v0.3.0", "v0.29.0"))
    refusal = refused(tree)
    assert refusal.reason is Reason.SOURCE_FOREIGN_TAG
    assert "nearest version tag gives v0.29.0-2-g" in refusal.message
    assert "tag -d proto-v0.3.0" in refusal.message


def test_a_foreign_tag_that_is_further_away_is_none_of_the_build_s_business(tree: Path) -> None:
    fixture.git(tree, "tag", "proto-v0.3.0", "HEAD~1")
    fixture.git(tree, "tag", "v0.30.0")
    source.require_sound(source.facts(tree), tree)


def test_a_tag_without_a_digit_is_none_for_setuptools_scm(tree: Path) -> None:
    fixture.git(tree, "tag", "nightly")
    source.require_sound(source.facts(tree), tree)


def test_a_project_that_counts_version_tags_only_may_have_foreign_ones(tmp_path: Path) -> None:
    tree = fixture.project(tmp_path / "project", version_tags_only=True)
    fixture.git(tree, "tag", "proto-v0.3.0")
    facts = source.facts(tree)
    assert facts.version_tags_only
    assert facts.nearest != facts.describe
    source.require_sound(facts, tree)


def test_a_project_may_say_so_in_its_pyproject_as_well(tree: Path) -> None:
    with open(tree / "pyproject.toml", "a") as stream:
        stream.write("[tool.setuptools_scm.scm.git]\ndescribe_command = \"git describe --match 'v[0-9]*' --long\"\n")
    fixture.commit(tree, "describe")
    assert source.facts(tree).version_tags_only


def test_changes_that_are_not_committed_are_refused_by_name(tree: Path) -> None:
    (tree / "setup.py").write_text("")
    (tree / "csrc/ext.c").unlink()
    facts = source.facts(tree)
    assert (facts.clean, facts.changed) == (False, ("csrc/ext.c", "setup.py"))
    refusal = refused(tree)
    assert refusal.reason is Reason.SOURCE_DIRTY
    assert "csrc/ext.c, setup.py" in refusal.message
    assert "stash" in refusal.message


def test_files_that_are_not_tracked_are_counted_since_only_the_commit_is_built(tree: Path, tmp_path: Path) -> None:
    (tree / "notes.txt").write_text("")
    facts = source.facts(tree)
    assert (facts.clean, facts.untracked) == (True, 1)
    source.require_sound(facts, tree)
    assert not (source.take(tree, tmp_path / "taken") / "notes.txt").exists()


def test_no_hook_filter_nor_setting_of_the_user_runs(
    tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    for hook in ("post-checkout", "reference-transaction", "fsmonitor-watchman"):
        (tree / ".git/hooks" / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (tree / ".git/hooks" / hook).chmod(0o755)
    fixture.git(tree, "config", "core.fsmonitor", str(program))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {tree}/.git/hooks\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    source.facts(tree)
    source.take(tree, tmp_path / "taken")
    assert not mark.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to another owner")
def test_a_clone_of_another_owner_is_read_since_a_person_named_it(tree: Path, tmp_path: Path) -> None:
    subprocess.run(["chown", "-R", "12345", tree], check=True)
    assert source.facts(tree).clean
    assert source.facts(source.take(tree, tmp_path / "taken")).describe == source.facts(tree).describe


def test_a_folder_inside_another_repository_has_none_of_its_facts(tree: Path) -> None:
    with pytest.raises(Refusal) as caught:
        source.facts(tree / "csrc")
    assert caught.value.reason is Reason.SOURCE_INVALID


@pytest.mark.parametrize("name", ["missing", "empty", "text.txt"])
def test_what_is_no_source_at_all_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("not a bundle")
    with pytest.raises(Refusal) as caught:
        source.facts(tmp_path / name)
    assert caught.value.reason is Reason.SOURCE_INVALID


# -- a private tree ------------------------------------------------------------------------------


def test_a_taken_clone_has_the_same_facts_and_every_tag(made: Path, tmp_path: Path) -> None:
    taken = source.take(made, tmp_path)
    assert source.facts(taken) == source.facts(made)
    assert source.key(taken) == source.key(made)


def test_another_revision_can_be_taken(made: Path, tmp_path: Path) -> None:
    facts = source.facts(source.take(made, tmp_path, revision="v0.29.0"))
    assert (facts.describe, facts.clean) == ("v0.29.0", True)


def test_the_same_source_is_taken_once_and_a_changed_one_again(tree: Path, tmp_path: Path) -> None:
    mark = source.take(tree, tmp_path / "taken") / "mark"
    mark.touch()
    assert source.take(tree, tmp_path / "taken") == mark.parent
    assert mark.exists()
    fixture.git(tree, "tag", "v0.30.0")  # the same commit, and yet another version
    source.take(tree, tmp_path / "taken")
    assert not mark.exists()


def test_a_half_taken_tree_is_taken_anew(made: Path, tmp_path: Path) -> None:
    taken = source.take(made, tmp_path)
    (tmp_path / "pinproof-source.json").unlink()
    (taken / "setup.py").unlink()
    assert (source.take(made, tmp_path) / "setup.py").exists()


# -- a bundle ------------------------------------------------------------------------------------


def test_a_bundle_is_cloned_first_and_has_the_facts_of_the_clone(made: Path, tmp_path: Path) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle")
    facts = source.facts(source.take(file, tmp_path / "taken"), taken_from=file)
    assert (facts.kind, len(facts.sha256)) == ("bundle", 64)
    assert replace(facts, kind="clone", sha256=None) == source.facts(made)


def test_a_bundle_without_a_head_is_taken_at_its_only_branch_or_at_the_named_revision(
    made: Path, tmp_path: Path
) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle", "main", "--tags")
    commit = fixture.git(made, "rev-parse", "HEAD")
    assert source.facts(source.take(file, tmp_path / "a")).commit == commit
    assert source.facts(source.take(file, tmp_path / "b", revision=commit)).commit == commit
    assert source.facts(source.take(file, tmp_path / "c", revision="v0.29.0")).revisions == 1


def test_a_taken_branch_can_be_taken_from_again(made: Path, tmp_path: Path) -> None:
    fixture.git(made, "clone", "--quiet", "--bare", str(made), str(tmp_path / "bare"))
    fixture.git(tmp_path / "bare", "branch", "release", "v0.29.0")
    taken = source.take(fixture.bundle(tmp_path / "bare", tmp_path / "b"), tmp_path / "first", revision="release")
    assert source.facts(source.take(taken, tmp_path / "second")).describe == "v0.29.0"


def test_a_bundle_that_does_not_hold_the_revision_is_refused_with_what_it_holds(made: Path, tmp_path: Path) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle")
    with pytest.raises(Refusal, match=r"holds no release; it holds .*refs/heads/main") as caught:
        source.take(file, tmp_path / "taken", revision="release")
    assert caught.value.reason is Reason.SOURCE_INVALID


def test_a_bundle_of_a_range_is_as_good_as_shallow(made: Path, tmp_path: Path) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle", "v0.29.0..main")
    with pytest.raises(Refusal, match="range of revisions") as caught:
        source.take(file, tmp_path / "taken")
    assert caught.value.reason is Reason.SOURCE_SHALLOW


def test_a_bundle_without_tags_is_refused_with_how_to_make_it(made: Path, tmp_path: Path) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle", "main")
    facts = source.facts(source.take(file, tmp_path / "taken"), taken_from=file)
    with pytest.raises(Refusal, match="git bundle create") as caught:
        source.require_sound(facts, file)
    assert caught.value.reason is Reason.SOURCE_UNTAGGED


def test_a_truncated_bundle_is_refused(made: Path, tmp_path: Path) -> None:
    file = fixture.bundle(made, tmp_path / "vllm.bundle")
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(Refusal) as caught:
        source.take(file, tmp_path / "taken")
    assert caught.value.reason is Reason.SOURCE_INVALID


# -- a released source archive -------------------------------------------------------------------


def test_an_archive_tells_version_and_commit_and_no_git_facts(tmp_path: Path) -> None:
    file = fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz")
    facts = source.facts(source.take(file, tmp_path / "taken"), taken_from=file)
    assert (facts.kind, facts.name, facts.version, facts.commit_id) == ("sdist", "vllm", "0.32.0", "g5df63a720")
    unknown = ("commit", "tree", "describe", "nearest", "shallow", "revisions", "clean", "tags")
    assert {getattr(facts, name) for name in unknown} == {None}
    source.require_sound(facts, file, commit="5df63a720" + "0" * 31)


def test_an_archive_of_another_commit_than_declared_is_refused(tmp_path: Path) -> None:
    tree = source.take(fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz"), tmp_path / "taken")
    with pytest.raises(Refusal, match="is at 5df63a720"):
        source.require_sound(source.facts(tree), tree, commit="e" * 40)


def test_an_archive_may_not_know_its_commit(tmp_path: Path) -> None:
    file = fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz", commit_id=None)
    facts = source.facts(source.take(file, tmp_path / "taken"), taken_from=file)
    assert facts.commit_id is None
    source.require_sound(facts, file, commit="e" * 40)


def test_an_unpacked_archive_is_known_by_its_contents(tmp_path: Path) -> None:
    file = fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz")
    tree = source.take(file, tmp_path / "taken")
    unpacked = tmp_path / "unpacked"
    subprocess.run(["cp", "-a", tree, unpacked], check=True)
    before = source.facts(unpacked).sha256
    (unpacked / "setup.py").write_text("other")
    assert source.facts(unpacked).sha256 != before
    assert source.facts(unpacked).identity == {"sha256": source.facts(unpacked).sha256}


def test_an_archive_below_a_git_repository_has_none_of_its_facts(tree: Path, tmp_path: Path) -> None:
    taken = source.take(fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz"), tree / "results")
    assert source.facts(taken).commit is None


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"vllm-0.32.0/setup.py": ""}, "plain archive of a repository has no tags, hence no version"),
        ({"vllm-0.32.0/PKG-INFO": "Name: vllm\nVersion: 0.32.0\n", "other/x": ""}, "2 folders at the top"),
        ({"vllm-0.32.0/PKG-INFO": "Name: vllm\nVersion: 0.31.0\n"}, "the file name says vllm 0.32.0"),
        ({"vllm-0.32.0/PKG-INFO": "Summary: none\n"}, "no Name or no Version"),
        ({"../outside": "x", "vllm-0.32.0/PKG-INFO": "Name: vllm\nVersion: 0.32.0\n"}, "cannot be unpacked"),
        ({"/tmp/pinproof-outside": "x"}, "no PKG-INFO"),
    ],
)
def test_an_archive_that_is_not_a_release_is_refused(files: dict[str, str], what: str, tmp_path: Path) -> None:
    file = fixture.archive(tmp_path / "in/vllm-0.32.0.tar.gz", files)
    with pytest.raises(Refusal, match=what) as caught:
        source.take(file, tmp_path / "in/taken")
    assert caught.value.reason is Reason.SOURCE_INVALID
    assert not (tmp_path / "in/outside").exists()
    assert not Path("/tmp/pinproof-outside").exists()


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    file = fixture.sdist(tmp_path / "vllm-0.32.0.tar.gz")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(Refusal, match="cannot be unpacked") as caught:
        source.take(file, tmp_path / "taken")
    assert caught.value.reason is Reason.SOURCE_INVALID
