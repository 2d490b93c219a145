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
# Shapes that their issuers document, and the places where a secret stands by its name.
_SHAPES = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"
    rb"|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}"
    rb"|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    rb"|(?<=Bearer )[\w.~+/-]{16,}=*"
    rb"|(?<=://)[^\s/@\"'\\]+:[^\s/@\"'\\]+(?=@)",
    re.DOTALL,
)
_NAMED = re.compile(
    rb"((?:--(?:api-key|hf-token)[ =]\[?[\"']?)"
    rb"|(?:api[_-]key|auth[_-]token|access[_-]token|hf[_-]token|secret[_-]key|client[_-]secret|password)"
    rb"\\?[\"']?\s*[:=]\s*\[?\\?[\"']?)([^\s\"'\\,\]}\[]{8,})",
    re.IGNORECASE,
)
_HOMES = rb"/(?:home|Users)/[^\s/\"'\\:,;()<>\[\]{}]+|/root(?![\w.-])"
_PATH = re.compile(rb"[^\s\"'\\,;]+")
_BEFORE, _AFTER = rb"(?<![\w.~-])", rb"(?![\w.-])"  # a whole word of a path


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
        if home.count("/") > 1:
            named |= {os.fsencode(home): HOME}
        named = {place: word for place, word in named.items() if place.count(b"/") > 1}
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
        return _NAMED.sub(rb"\1" + SECRET, _SHAPES.sub(SECRET, data))

    def paths(self, data: bytes) -> list[bytes]:
        """The paths that would be changed, whole."""
        return [_PATH.match(data, found.start())[0] for found in self._paths.finditer(data)]

    @functools.cached_property
    def _paths(self) -> re.Pattern[bytes]:
        longest_first = sorted(self.folders, key=len, reverse=True)
        named = [re.escape(place) + _AFTER for place in longest_first]
        return re.compile(_BEFORE + b"(?:" + b"|".join([*named, _HOMES]) + b")")

    def _path(self, found: re.Match[bytes]) -> bytes:
        text, at = found.string, found.start()
        if any(text.startswith(path, at) for path in self.kept):
            return found[0]
        return self.folders.get(found[0], HOME)
