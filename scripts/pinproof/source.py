"""Source trees: what a git clone, a git bundle or a released source archive is, before it is built.

Nothing of the tree is run. git is a subprocess with a configuration of its own: no hooks, no
fsmonitor, neither the user's settings nor the system's.

A released source archive has no git facts: they are null. Its version stands in PKG-INFO and its
commit in `_version.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from pinproof import records, versionfile
from pinproof.reasons import Reason, Refusal

VERSION_TAGS = "v[0-9]*"
_SCM_TAGS = "*[0-9]*"  # what setuptools_scm looks at when a project does not tell it otherwise
_HASH_LENGTH = "9"
_MARKER = "pinproof-source.json"
_QUIET = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
Kind = Literal["clone", "bundle", "sdist"]


@dataclass(frozen=True)
class SourceFacts:
    """What a source tree is; a fact that this kind of source cannot have is None.

    `describe` counts version tags only, `nearest` any tag that setuptools_scm would take.
    `version` and `commit_id` (with its leading g) are what a released source archive says of itself;
    `sha256` is the digest of the bundle or archive, or of all files of an unpacked archive.
    `untracked` files are counted and do not make a tree dirty: what is built is the commit.
    """

    kind: Kind
    commit: str | None = None
    tree: str | None = None
    describe: str | None = None
    nearest: str | None = None
    version_tags_only: bool | None = None
    shallow: bool | None = None
    revisions: int | None = None
    clean: bool | None = None
    changed: tuple[str, ...] = ()
    untracked: int | None = None
    tags: tuple[str, ...] | None = None
    name: str | None = None
    version: str | None = None
    commit_id: str | None = None
    sha256: str | None = None

    @property
    def identity(self) -> dict[str, str | None]:
        """What of it changes the bytes of a build: the content, and the tags that make the version."""
        if self.kind == "sdist":
            return {"sha256": self.sha256}
        return {"commit": self.commit, "tree": self.tree, "describe": self.describe, "nearest": self.nearest}

    def as_record(self) -> dict:
        """The facts as JSON values."""
        return asdict(self)


def kind(path: Path) -> Kind:
    """Which kind of source a path is. Refusal SOURCE_INVALID names the three kinds there are."""
    if path.is_dir() and (path / ".git").exists():
        return "clone"
    if (path / "PKG-INFO").is_file() or path.name.endswith((".tar.gz", ".tgz")):
        return "sdist"
    if path.is_file():
        with path.open("rb") as stream:
            if re.match(rb"# v\d+ git bundle\n", stream.read(32)):
                return "bundle"
    what = "no such path" if not path.exists() else "neither a git clone, a git bundle nor a released source archive"
    raise Refusal(Reason.SOURCE_INVALID, what, file=path)


def facts(path: Path, *, revision: str = "HEAD", taken_from: Path | None = None) -> SourceFacts:
    """The facts of a clone at a revision, or of an unpacked source archive.

    `taken_from` is the bundle or archive that `take` made the tree of: its kind and its digest
    count. Refusal SOURCE_INVALID, with git's own words when git refuses.
    """
    origin = taken_from or path
    what = kind(origin)
    digest = records.file_sha256(origin) if origin.is_file() else None
    if what == "sdist":
        return _sdist_facts(path, digest or (_taken(path) or {}).get("sha256") or content_digest(path))
    commit = _commit(path, revision)
    changed, untracked = _changes(path) if commit == _git(path, "rev-parse", "HEAD") else (None, None)
    return SourceFacts(
        kind=what,
        commit=commit,
        tree=_git(path, "rev-parse", f"{commit}^{{tree}}"),
        describe=_describe(path, commit, VERSION_TAGS),
        nearest=_describe(path, commit, _SCM_TAGS),
        version_tags_only=_counts_version_tags_only(path, commit),
        shallow=_git(path, "rev-parse", "--is-shallow-repository") == "true",
        revisions=int(_git(path, "rev-list", "--count", commit) or 0),
        clean=None if changed is None else not changed,
        changed=tuple(changed or ()),
        untracked=untracked,
        tags=tuple((_git(path, "tag", "--merged", commit, "--sort=version:refname") or "").split()),
        sha256=digest,
    )


def require_sound(found: SourceFacts, path: Path, *, commit: str | None = None) -> None:
    """Refuse a tree whose build could not know its own version, with the command that mends it.

    `commit` is the declared one, 40 hex digits. Refusals: SOURCE_INVALID (another commit),
    SOURCE_SHALLOW, SOURCE_UNTAGGED, SOURCE_FOREIGN_TAG, SOURCE_DIRTY.
    """
    has = found.commit or (found.commit_id or "").removeprefix("g")
    if commit and has and not commit.startswith(has):
        raise Refusal(Reason.SOURCE_INVALID, f"the source is at {has}, the case declares {commit}", file=path)
    if found.kind == "sdist":
        return
    fetch = (
        f"git -C {path} fetch --tags" if found.kind == "clone" else "make the bundle anew: git bundle create … --all"
    )
    if found.shallow:
        deepen = (
            f"git -C {path} fetch --unshallow --tags" if found.kind == "clone" else "make the bundle of a full clone"
        )
        message = f"a shallow history of {found.revisions} revisions: its version cannot be counted; {deepen}"
        raise Refusal(Reason.SOURCE_SHALLOW, message, file=path)
    if found.describe is None:
        message = (
            f"no version tag ({VERSION_TAGS}) in the history of {found.commit}"
            f" ({found.revisions} revisions, tags: {', '.join(found.tags or ()) or 'none'}),"
            f" so a build would call itself 0.1.dev{found.revisions}; {fetch}"
        )
        raise Refusal(Reason.SOURCE_UNTAGGED, message, file=path)
    if not found.version_tags_only and found.nearest != found.describe:
        delete = f"git -C {path} tag -d {_tag(found.nearest)} (in this clone)"
        delete = delete if found.kind == "clone" else "delete it before bundling"
        message = (
            f"the nearest tag is foreign: {found.nearest}, the nearest version tag gives {found.describe}, and the"
            f" build takes the nearest of all; {delete}, or {fetch}"
        )
        raise Refusal(Reason.SOURCE_FOREIGN_TAG, message, file=path)
    if found.clean is False:
        some = ", ".join(found.changed[:3]) + (f" and {len(found.changed) - 3} more" if len(found.changed) > 3 else "")
        raise Refusal(Reason.SOURCE_DIRTY, f"uncommitted changes of {some}; git -C {path} stash", file=path)


def take(path: Path, folder: Path, *, revision: str = "HEAD", again: bool = False) -> Path:
    """A private tree of a source in `folder/tree`, at a revision; the same source is taken once.

    A half-taken one is taken anew, and with `again` any. Refusals: SOURCE_INVALID, SOURCE_SHALLOW (a
    bundle of a shallow clone, or of a range of revisions).
    """
    tree, marker = folder / "tree", folder / _MARKER
    what = key(path, revision)
    try:
        if not again and tree.is_dir() and records.read(marker, "source-taken")["key"] == what:
            return tree
    except Refusal:
        pass
    marker.unlink(missing_ok=True)
    shutil.rmtree(tree, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if kind(path) == "sdist":
        shutil.copytree(path, tree, symlinks=True) if path.is_dir() else _unpack(path, tree)
    else:
        _clone(path, tree, _bundled(path, revision) if kind(path) == "bundle" else _commit(path, revision))
    records.write(marker, "source-taken", {"key": what})
    return tree


def key(path: Path, revision: str = "HEAD") -> dict[str, str | None]:
    """By what a source is known again: a file by its digest, a clone by commit and tags, a tree by its contents.

    A tree that `take` made is what it was made of.
    """
    if path.is_file():
        return {"sha256": records.file_sha256(path), "revision": revision}
    if revision == "HEAD" and (taken := _taken(path)) is not None:
        return taken
    if kind(path) == "sdist":
        return {"sha256": content_digest(path), "revision": None}
    commit = _commit(path, revision)
    return {"tags": records.digest(_git(path, "show-ref", "--tags") or ""), "revision": commit}


def identity(folder: Path) -> dict[str, str] | None:
    """By what a staged folder is known: the commit of a clean clone, else its contents; None where there is none."""
    if not folder.is_dir():
        return None
    if (folder / ".git").exists() and _changes(folder) == ([], 0):
        return {"commit": _commit(folder, "HEAD")}
    return {"sha256": content_digest(folder)}


def _taken(tree: Path) -> dict[str, str | None] | None:
    """The key of what `take` made this tree of; None for a tree that it did not make."""
    marker = tree.parent / _MARKER
    return records.read(marker, "source-taken")["key"] if tree.name == "tree" and marker.is_file() else None


def content_digest(folder: Path, *, leave_out: tuple[str, ...] = (".git",)) -> str:
    """sha256 of all files below a folder: names, whether executable, contents; links by their target."""
    entries = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in leave_out)
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in [*links, *(name for name in files if name not in leave_out)]:
            file = Path(root) / name
            link = str(file.readlink()) if file.is_symlink() else None
            content = link if link is not None else records.file_sha256(file)
            executable = link is None and os.access(file, os.X_OK)
            entries.append([file.relative_to(folder).as_posix(), executable, link is not None, content])
    return records.digest(sorted(entries))


# -- git -----------------------------------------------------------------------------------------


def _git(path: Path, *words: str, trusted: Path | None = None) -> str | None:
    """What git prints, without the last line break; None when it answers that there is no such thing.

    `trusted` is another repository that git reads, whoever owns it: a person named it. Refusals:
    SOURCE_INVALID with git's words, SOURCE_SHALLOW for a bundle that is not whole.
    """
    safe = ["core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.ext.allow=never"]
    options = [word for value in [*safe, f"safe.directory={path.absolute()}"] for word in ("-c", value)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as settings:
        if trusted is not None:  # git starts another git there, which sees the file but not the options
            settings.write(f"[safe]\n\tdirectory = {trusted}\n\tdirectory = {trusted / '.git'}\n")
            settings.flush()
            kept["GIT_CONFIG_GLOBAL"] = settings.name
        try:
            done = subprocess.run(
                ["git", *options, *words], cwd=path, env=_QUIET | kept, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise Refusal(Reason.SOURCE_INVALID, f"git cannot be started: {error.strerror}", file=path) from None
    said = done.stderr.strip()
    if done.returncode == 0:
        return done.stdout.rstrip("\n")
    if not said or re.search("No names found|No tags can describe|does not exist in|exists on disk, but not in", said):
        return None
    if "prerequisite commits" in said:
        message = "the bundle holds a range of revisions only: make it of a full clone with git bundle create … --all"
        raise Refusal(Reason.SOURCE_SHALLOW, message, file=path)
    raise Refusal(Reason.SOURCE_INVALID, f"git {words[0]}: {said}", file=path)


def _commit(path: Path, revision: str) -> str:
    commit = _git(path, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit is None:
        raise Refusal(Reason.SOURCE_INVALID, f"has no commit {revision}; git fetch --tags, or correct it", file=path)
    return commit


def _describe(path: Path, commit: str, pattern: str) -> str | None:
    return _git(path, "describe", "--tags", "--abbrev=" + _HASH_LENGTH, "--match", pattern, commit)


def _tag(describe: str) -> str:
    return re.sub(r"-\d+-g[0-9a-f]+$", "", describe)


def _changes(path: Path) -> tuple[list[str], int]:
    """Files that differ from the commit, and how many are not tracked."""
    lines = (_git(path, "status", "--porcelain=v1", "--no-renames") or "").splitlines()
    return [line[3:] for line in lines if line[:2] != "??"], sum(line[:2] == "??" for line in lines)


def _counts_version_tags_only(path: Path, commit: str) -> bool:
    """Does the build's own `git describe` name version tags only? Read in its text, not run."""
    texts = {name: _git(path, "show", f"{commit}:{name}") or "" for name in ("setup.py", "pyproject.toml")}
    try:
        tables = tomllib.loads(texts["pyproject.toml"]).get("tool", {})
    except tomllib.TOMLDecodeError:
        tables = {}
    command = " ".join(str(value) for value in _leaves(tables.get("setuptools_scm", {})))
    quoted = re.compile(r"--match[\"']?[\s,=]*[\"']?" + re.escape(VERSION_TAGS))
    return bool(quoted.search(command) or quoted.search(texts["setup.py"]))


def _leaves(table: object) -> list[object]:
    if isinstance(table, Mapping):
        return [leaf for value in table.values() for leaf in _leaves(value)]
    return [leaf for value in table for leaf in _leaves(value)] if isinstance(table, list) else [table]


def _clone(path: Path, tree: Path, commit: str) -> None:
    """A clone with every tag and the whole history, at a commit."""
    place = path.absolute()
    above = tree.parent
    words = ("clone", "--quiet", "--no-checkout", "--template=", str(place), str(tree.absolute()))
    _git(above, *words, trusted=place)
    _git(tree, "fetch", "--quiet", str(place), "+refs/tags/*:refs/tags/*", trusted=place)
    _git(tree, "checkout", "--quiet", "--detach", commit)


def _bundled(bundle: Path, revision: str) -> str:
    """The commit that a revision is in a bundle: its HEAD, the only branch, a ref, or 40 hex digits."""
    lines = (_git(bundle.absolute().parent, "bundle", "list-heads", str(bundle.absolute())) or "").splitlines()
    refs = {ref: commit for commit, _, ref in (line.partition(" ") for line in lines)}
    branches = {commit for ref, commit in refs.items() if ref.startswith("refs/heads/")}
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    found = [refs[name] for name in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}") if name in refs]
    if not found and revision == "HEAD" and len(branches) == 1:
        found = list(branches)
    if not found:
        message = f"holds no {revision}; it holds {', '.join(refs) or 'nothing'}: name one as the revision"
        raise Refusal(Reason.SOURCE_INVALID, message, file=bundle)
    return found[0]


# -- released source archives --------------------------------------------------------------------


def _sdist_facts(tree: Path, digest: str) -> SourceFacts:
    try:
        metadata, _ = parse_email((tree / "PKG-INFO").read_bytes())
    except OSError as error:
        raise Refusal(Reason.SOURCE_INVALID, f"PKG-INFO cannot be read: {error.strerror}", file=tree) from None
    name, version = metadata.get("name"), metadata.get("version")
    if not name or not version:
        raise Refusal(Reason.SOURCE_INVALID, "PKG-INFO has no Name or no Version", file=tree)
    _, commit_id = versionfile.read(tree, name)
    return SourceFacts(kind="sdist", name=name, version=version, commit_id=commit_id, sha256=digest)


def _unpack(archive: Path, tree: Path) -> None:
    """Unpack a released source archive: one folder `name-version` with PKG-INFO, nothing outside of it."""
    partial = tree.with_name(".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with tarfile.open(archive, "r:gz") as packed:
            packed.extractall(partial, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Refusal(Reason.SOURCE_INVALID, f"cannot be unpacked: {error}", file=archive) from None
    folders = sorted(partial.iterdir())
    if len(folders) != 1 or not (folders[0] / "PKG-INFO").is_file():
        what = "no PKG-INFO in its one folder" if len(folders) == 1 else f"{len(folders)} folders at the top"
        message = (
            f"not a released source archive: {what}; a plain archive of a repository has no tags, hence no version"
        )
        raise Refusal(Reason.SOURCE_INVALID, message, file=archive)
    found = _sdist_facts(folders[0], "")
    stem = archive.name.removesuffix(".tar.gz").removesuffix(".tgz")
    name, _, version = stem.rpartition("-")
    if canonicalize_name(name) != canonicalize_name(found.name or "") or version != found.version:
        message = f"the file name says {name} {version}, PKG-INFO says {found.name} {found.version}"
        raise Refusal(Reason.SOURCE_INVALID, message, file=archive)
    folders[0].replace(tree)
    partial.rmdir()
