"""The pin block: what is declared, and what is refused with file and line."""

from pathlib import Path

import pytest

from pinproof.pin import commit_in, parse_pin, read_pin, replaced
from pinproof.reasons import Reason, Refusal

COMMIT = "e126687a9a828d513c01a07cd69f025f27d63280"
LINES = [
    f"vllm_commit = {COMMIT}",
    "vllm_runtime_version = 0.28.1rc1.dev132+ge126687a9",
    "vllm_distribution_version = 0.28.1rc1.dev132+ge126687a9",
]


def block(*lines: str, fence: str = "```", info: str = "parity-pin") -> str:
    return "\n".join([f"{fence}{info}", *lines, fence, ""])


def refused(text: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_pin(text, file="sync.md")
    assert caught.value.reason is Reason.PIN_INVALID
    assert caught.value.file == "sync.md"
    return caught.value


def test_block_is_read_from_a_page(tmp_path: Path):
    page = tmp_path / "sync.md"
    page.write_text("# Sync\n\ntext\n\n" + block("# a comment", "", *LINES, "flashinfer_version=0.6.18") + "\nmore\n")
    pin = read_pin(page)
    assert pin.vllm_commit == COMMIT
    assert pin.flashinfer_version == "0.6.18"
    assert pin.torch_version is None
    assert pin.as_record() == {"fields": dict(pin.fields)}
    assert list(pin.fields) == [
        "vllm_commit",
        "vllm_runtime_version",
        "vllm_distribution_version",
        "flashinfer_version",
    ]


def test_record_and_equality_do_not_depend_on_where_the_block_stands():
    one, other = parse_pin(block(*LINES)), parse_pin("prose\n\n" + block(*LINES))
    assert one == other
    assert one.as_record() == other.as_record()


def test_values_of_one_block_need_not_agree_or_differ():  # A 11: no relation between the two strings is assumed
    for distribution in ("0.28.1rc1.dev132+ge126687a9", "0.28.1rc1.dev132+ge126687a9.precompiled"):
        parse_pin(block(*LINES[:2], f"vllm_distribution_version = {distribution}"))


def test_released_version_carries_no_commit_and_the_commit_has_its_own_field():  # A 13
    pin = parse_pin(block(LINES[0], "vllm_runtime_version = 0.26.0", "vllm_distribution_version = 0.26.0+cpu"))
    assert pin.vllm_commit == COMMIT
    assert pin.vllm_runtime_version == "0.26.0"


@pytest.mark.parametrize(
    ("lines", "key", "says"),
    [
        ([*LINES, "torch = 2.13.0"], "line 5", "unknown field torch"),
        ([*LINES, LINES[1]], "line 5", "declared twice, first on line 3"),
        (LINES[:2], "line 1", "does not declare vllm_distribution_version"),
        ([], "line 1", "vllm_commit, vllm_runtime_version"),
        ([*LINES, "torch_version 2.13.0"], "line 5", "name = value"),
        ([*LINES, "torch_version ="], "line 5", "name = value"),
        ([*LINES, "torch_version = 2.13.0 # cpu"], "line 5", "name = value"),
        ([*LINES, "torch_version == 2.13.0"], "line 5", "name = value"),
        ([*LINES, "torch_version = new"], "line 5", "not a version"),
        ([*LINES, "build_mode = wheel"], "line 5", "none of source, precompiled, index, file"),
        (["vllm_commit = e126687a9", *LINES[1:]], "line 2", "40 lower-case hex"),
        ([f"vllm_commit = {COMMIT.upper()}", *LINES[1:]], "line 2", "40 lower-case hex"),
        ([LINES[0], "vllm_runtime_version = 0.1.dev1+gdeadbeef1", LINES[2]], "line 3", "+gdeadbeef1"),
    ],
)
def test_bad_block_is_refused_with_its_line(lines, key, says):
    refusal = refused(block(*lines))
    assert refusal.key == key
    assert says in refusal.message


def test_second_block_is_refused():
    refusal = refused(block(*LINES) + "\n" + block(*LINES))
    assert refusal.key == "line 7"
    assert "the first is on line 1" in refusal.message


def test_no_block_is_refused_and_a_shown_one_is_pointed_at():
    assert "no fenced block" in refused("# Sync\n").message
    assert "line 3 only shows one" in refused("# Sync\n\n    " + block(*LINES, info="parity-pin")).message


def test_open_block_is_refused():
    refusal = refused("```parity-pin\n" + "\n".join(LINES) + "\n")
    assert (refusal.key, refusal.message) == ("line 1", "the block is not closed")


def test_info_string_must_be_exact():
    assert "more than parity-pin" in refused(block(*LINES, info="parity-pin old")).message
    assert "no fenced block" in refused(block(*LINES, info="parity-pins")).message


def test_missing_and_binary_files_are_refused(tmp_path: Path):
    for name, data in (("none.md", None), ("binary.md", b"\xff\xfe\x00")):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(Refusal) as caught:
            read_pin(tmp_path / name)
        assert caught.value.reason is Reason.PIN_INVALID


INNER = block("vllm_commit = 1", fence="```")


@pytest.mark.parametrize(
    "example",
    [
        "~~~~\n" + INNER + "~~~~\n",
        "````markdown\n" + INNER + "````\n",
        "~~~ text with ` and ~\n" + INNER + "~~~\n",
        "".join(f"    {line}\n" for line in INNER.splitlines()),
        "".join(f"> {line}\n" for line in INNER.splitlines()),
        "<!-- the previous pin\n" + INNER + "-->\n",
        "<pre>\n" + INNER + "</pre>\n",
        "use ``` ```parity-pin ``` in a page\n",
        "``` not`a fence\n",
        "```text\n```parity-pin\n~~~\n    ```\n``\n```\n",
    ],
)
def test_block_that_is_only_shown_is_not_the_pin(example):
    assert parse_pin(example + "\n" + block(*LINES)).vllm_commit == COMMIT
    assert parse_pin(block(*LINES) + "\n" + example).vllm_commit == COMMIT


@pytest.mark.parametrize(
    "page",
    [
        block(*LINES, fence="~~~"),
        block(*LINES, fence="`````"),
        block(*LINES, info="  parity-pin  "),
        "   " + block(*LINES),
        "```parity-pin\n" + "\n".join(LINES) + "\n  `````  \n",
        "\ufeff" + block(*LINES),
        block(*LINES).replace("\n", "\r\n"),
        "<!-- one line --> text\n" + block(*LINES),
    ],
)
def test_every_form_of_a_commonmark_fence_is_read(page):
    assert parse_pin(page).vllm_commit == COMMIT


def test_longer_fence_is_not_closed_by_a_shorter_one():
    assert refused(block(*LINES, "```", fence="````")).key == "line 5"


@pytest.mark.parametrize(
    ("version", "commit"),
    [
        ("0.28.1rc1.dev132+ge126687a9.precompiled", "e126687a9"),
        ("0.1.dev1+gb22b798.d20241006.cu126", "b22b798"),
        ("0.26.0", None),
        ("0.26.0+gpu", None),
        ("dev", None),
    ],
)
def test_commit_in_a_version(version, commit):
    assert commit_in(version) == commit


def test_replaced_changes_the_value_and_no_other_byte():
    text = "intro\r\n" + block(*LINES, "torch_version =  2.13.0  ").replace("\n", "\r\n")
    pin = parse_pin(text)
    assert replaced(pin, {"torch_version": "2.14.0"}) == text.replace("2.13.0", "2.14.0")
    assert replaced(pin, {}) == text


@pytest.mark.parametrize("mode", ["index", "file"])
def test_a_released_wheel_may_leave_the_commit_out_because_its_digest_is_the_identity(mode):
    pin = parse_pin(block(f"build_mode = {mode}", *LINES[1:]))
    assert pin.vllm_commit is None
    assert "vllm_commit" not in pin.fields


def test_a_build_from_source_must_declare_its_commit():
    with pytest.raises(Refusal, match="does not declare vllm_commit"):
        parse_pin(block("build_mode = source", *LINES[1:]))
