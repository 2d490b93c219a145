"""Scrubbing: secrets, home folders and the places of a checkout are taken out of what leaves the machine.

Bytes are changed, never parsed: a raw output, a log and a record are treated alike. What a person wrote
in the case stays as it is there and wherever it was copied to, for identities depend on it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SECRET, HOME = b"[secret]", b"~"
SHORTEST = 8  # characters of a variable's value that is taken for a secret; a shorter one would be found anywhere

_NAMES = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL", re.IGNORECASE)
# Shapes that their issuers document. Each begins with its own letters: what is searched is megabytes long.
_SHAPES = tuple(
    re.compile(shape, re.DOTALL)
    for shape in (
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
        rb"hf_(?<!\whf_)[A-Za-z0-9]{20,}",
        rb"gh(?<!\wgh)[pousr]_[A-Za-z0-9]{30,}",
        rb"github_pat_\w{30,}",
        rb"glpat-[\w-]{20,}",
        rb"sk-(?<![\w-]sk-)[\w-]{20,}",
        rb"xox[abprs]-[\w-]{10,}",
        rb"AKIA[0-9A-Z]{16}(?!\w)",
        rb"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}",
        rb"Bearer (?P<secret>[\w.~+/-]{16,}=*)",
        rb"://(?P<secret>[^\s/@\"'\\]+:[^\s/@\"'\\]+)@",
    )
)
# Names beside which a secret stands, where any of the words is there at all.
_WORDS = tuple(
    word.replace(b"_", joint)
    for word in (b"api_key", b"auth_token", b"access_token", b"hf_token", b"secret_key", b"client_secret", b"password")
    for joint in (b"_", b"-")
)
_NAMED = re.compile(
    rb"(?:--(?:api-key|hf-token)[ =]\[?[\"']?"
    rb"|(?:api[_-]key|auth[_-]token|access[_-]token|hf[_-]token|secret[_-]key|client[_-]secret|password)"
    rb"\\?[\"']?\s*[:=]\s*\[?\\?[\"']?)(?P<secret>[^\s\"'\\,\]}\[]{8,})",
    re.IGNORECASE,
)
# Below a root, after the slash: homes, where no longer path was cut off before them.
_HOMES = rb"(?<![\w.~-]/)(?:(?:home|Users)/[^\s/\"'\\:,;()<>\[\]{}]+|root(?![\w.-]))"
_PATH = re.compile(rb"[^\s\"'\\,;]+")
_AFTER = rb"(?![\w.-])"  # the end of a word of a path


@dataclass(frozen=True)
class Scrubber:
    """What is taken out, and what is put there."""

    secrets: tuple[bytes, ...]  # values
    folders: Mapping[bytes, bytes]  # absolute folder -> what is put there
    kept: frozenset[bytes] = frozenset()  # paths that stay, with all that lies below them

    @classmethod
    def of_here(cls, folders: Mapping[Path, str], kept: Iterable[bytes] = ()) -> Scrubber:
        """For what was made on this machine by this account; `kept` are texts whose paths stay.

        `folders` are places of the checkout by the word that is put there. Secrets are the values of
        environment variables that are called so.
        """
        values = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= SHORTEST}
        named = {os.fsencode(place.absolute()): word.encode() for place, word in folders.items()}
        named |= {os.fsencode(place.resolve()): word.encode() for place, word in folders.items()}
        home = os.environ.get("HOME", "")
        named = {place: word for place, word in named.items() if place.count(b"/") > 1}
        if home.strip("/"):
            named |= {os.fsencode(home.rstrip("/")): HOME}
        bare = cls(tuple(sorted(map(os.fsencode, values), key=len, reverse=True)), named)
        return dataclasses.replace(bare, kept=frozenset(path for text in kept for path in bare.paths(text)))

    def __call__(self, data: bytes) -> bytes:
        """The bytes without them."""
        return self._paths.sub(self._path, self._without_secrets(data))

    def finds_secret(self, data: bytes) -> bool:
        """Whether there is a secret in it."""
        return self._without_secrets(data) != data

    def _without_secrets(self, data: bytes) -> bytes:
        for value in self.secrets:
            data = data.replace(value, SECRET)
        for shape in _SHAPES:
            data = shape.sub(_hidden, data)
        lower = data.lower()
        return _NAMED.sub(_hidden, data) if any(word in lower for word in _WORDS) else data

    def paths(self, data: bytes) -> list[bytes]:
        """The paths that would be changed, whole."""
        return [_PATH.match(data, found.start())[0] for found in self._paths.finditer(data)]

    @functools.cached_property
    def _paths(self) -> re.Pattern[bytes]:
        """The places of this machine wherever they stand (two writers of one log glue words together), and
        what looks like a home of another."""
        longest_first = sorted(self.folders, key=len, reverse=True)
        named = [re.escape(place[1:]) + _AFTER for place in longest_first]
        return re.compile(b"/(?:" + b"|".join([*named, _HOMES]) + b")")

    def _path(self, found: re.Match[bytes]) -> bytes:
        text, at = found.string, found.start()
        if any(text.startswith(path, at) for path in self.kept):
            return found[0]
        return self.folders.get(found[0], HOME)


def _hidden(found: re.Match[bytes]) -> bytes:
    """The text that was found without its secret, which may be all of it."""
    if "secret" not in found.re.groupindex:
        return SECRET
    start, end = (place - found.start() for place in found.span("secret"))
    return found[0][:start] + SECRET + found[0][end:]
