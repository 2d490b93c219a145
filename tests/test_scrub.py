"""Scrubbing: no secret, no home folder, no place of the checkout leaves the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinproof.scrub import Scrubber

NONE = Scrubber((), {})
SUPERUSER = os.sep + "root"  # the home of every machine's first account


@pytest.mark.parametrize(
    "text, left",
    [
        ("opened /home/anna/.cache/x", "opened ~/.cache/x"),
        (f'{{"tokenizer_id": "{SUPERUSER}/work/results/1"}}', '{"tokenizer_id": "~/work/results/1"}'),
        ("file:///home/anna/x", "file://~/x"),
        ("/Users/anna/x", "~/x"),
        ("a=/home/anna, b", "a=~, b"),
        ("cut off /home/an", "cut off ~"),
        ("/mnt/root/x and /rooted and x/root/y", "/mnt/root/x and /rooted and x/root/y"),
        ("hf_" + "a" * 34, "[secret]"),
        ("token ghp_" + "A1" * 18 + ".", "token [secret]."),
        ("Authorization: Bearer abcdefghijklmnop.q", "Authorization: Bearer [secret]"),
        ("https://anna:geheim@example.org/x", "https://[secret]@example.org/x"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n", "[secret]\n"),
        ("'api_key': ['abcdefgh1234']", "'api_key': ['[secret]']"),
        ("serve --api-key abcdefgh1234 --port 1", "serve --api-key [secret] --port 1"),
        ('{\\"api_key\\": \\"abcdefgh1234\\"}', '{\\"api_key\\": \\"[secret]\\"}'),
        ("'api_key': None, 'eos_token': '<|endoftext|>'", "'api_key': None, 'eos_token': '<|endoftext|>'"),
        ('"prompt_tokens": 123456789', '"prompt_tokens": 123456789'),
        ("a password required here", "a password required here"),
        ("the task-force-of-more-than-twenty-letters", "the task-force-of-more-than-twenty-letters"),
        ("12:03:04 http://127.0.0.1:8000/v1", "12:03:04 http://127.0.0.1:8000/v1"),
    ],
)
def test_what_is_taken_out_and_what_stays(text: str, left: str) -> None:
    assert NONE(text.encode()).decode() == left


def test_what_was_scrubbed_is_not_changed_again() -> None:
    once = NONE(b"api_key=abcdefgh1234 /home/anna/x https://a:bcd@e hf_" + b"a" * 30)
    assert NONE(once) == once


def test_values_of_variables_that_are_called_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("MY_WORD", "battery-staple")
    scrub = Scrubber.of_here({})
    assert scrub(b"correct-horse abc battery-staple") == b"[secret] abc battery-staple"


def test_places_of_the_checkout_become_words_the_innermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    scrub = Scrubber.of_here({tmp_path / "home/flow": "<workflow>", tmp_path / "home/flow/results": "<results>"})
    text = f"{tmp_path}/home/flow/results/x {tmp_path}/home/flow/y {tmp_path}/home/flow2 {tmp_path}/other"
    assert scrub(text.encode()).decode() == f"<results>/x <workflow>/y ~/flow2 {tmp_path}/other"


def test_this_account_s_home_is_found_where_two_writers_of_a_log_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", f"{SUPERUSER}/")
    glued = f"see refleaks.html{SUPERUSER}/.pyenv/x".encode()
    assert Scrubber.of_here({})(glued) == b"see refleaks.html~/.pyenv/x"
    monkeypatch.setenv("HOME", "/")
    assert Scrubber.of_here({})(b"/etc/x") == b"/etc/x"


def test_what_is_no_path_in_the_case_keeps_none() -> None:
    scrub = Scrubber.of_here({}, [b"a /r /home and/or /root-ish /"])
    assert scrub(f"{SUPERUSER}/x /home/anna/x".encode()) == b"~/x ~/x"


def test_a_path_that_the_case_names_stays_everywhere() -> None:
    scrub = Scrubber.of_here({}, [b'path: "/home/shared/models"  # of the group'])
    assert scrub(b"/home/shared/models/a /home/shared/other") == b"/home/shared/models/a ~/other"
