"""The case file: every bad input is refused with the file, the key, and what is allowed."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.builders import FILE, case_value, refusal_of, small_case

import write_schemas
from pinproof import case, pin
from pinproof.reasons import Reason

PUBLISHED = Path(__file__).parents[1] / "config" / "schemas" / "case.schema.json"
WORDS = "at most 64 letters, digits, dots, hyphens and underscores, the first a letter or a digit"


def refused(key: str, value: Any) -> list[str]:
    """The lines of the refusal of the small case with this key set."""
    refusal = refusal_of(case.parse, case_value({key: value}), FILE)
    assert refusal.reason is Reason.CASE_INVALID
    *lines, remedy = str(refusal).splitlines()
    assert remedy == "  remedy: correct the key in that file  [case-invalid, input]"
    return lines


def read(path: Path, text: str) -> str:
    """The first line of the refusal of a case file with this text."""
    path.write_text(text)
    refusal = refusal_of(case.load, path)
    assert refusal.reason is Reason.CASE_INVALID
    return str(refusal).splitlines()[0].removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "case.yaml"


def test_a_case_is_read_as_it_is_written(path: Path) -> None:
    path.write_text(yaml.safe_dump(case_value()))
    assert case.load(path) == small_case()
    assert small_case().row("serving").cells[0].id == "c1"


# -- single keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        (
            "unknown",
            "advance, arms, budgets, case, checkpoints, client, decision, device, discharges, lease, not_owed, pages, "
            "previous_pin, question, rows, tie_band, worker",
        ),
        ("arms.oracle.unknown", "compare, engine, pin, serve"),
        ("arms.oracle.engine.unknown", "distribution, locks, mode, provided, relabel, sha256, version"),
        ("arms.oracle.engine.relabel.unknown", "local, name"),
        ("rows[0].recipe.unknown", "input_tokens, output_tokens, warmup_prompts"),
        ("rows[0].cells[0].unknown", "concurrency, prompts"),
        ("rows[0].metrics[1].unknown", "baseline, baseline_reps, baselines, name, tolerance"),
        ("rows[0].serve.unknown", "args, env"),
        ("checkpoints.tiny.unknown", None),
        ("device.unknown", None),
        ("decision.unknown", None),
    ],
)
def test_an_unknown_key_is_refused_with_those_that_are_allowed(key: str, allowed: str | None) -> None:
    (line,) = refused(key, 1)
    assert line.startswith(f"case.yaml: {key}: unknown key; allowed are ")
    if allowed:
        assert line.endswith(f"allowed are {allowed}")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rows[0].cells[0].prompts", 0, "must be greater than 0 (got 0)"),
        ("rows[0].cells[0].prompts", 1.5, "must be a valid integer (got 1.5)"),
        ("rows[0].cells[0].prompts", True, "must be a valid integer (got True)"),
        ("rows[0].cells[0].prompts", None, "must be a valid integer (got nothing)"),
        ("rows[0].cells[0].concurrency", 4097, "must be less than or equal to 4096 (got 4097)"),
        ("rows[0].recipe.output_tokens", 1, "must be greater than 1 (got 1)"),
        ("rows[0].kind", "sorting", "must be 'serving', 'startup', 'warmup' or 'speculative' (got 'sorting')"),
        ("rows[0].direction", "up", "must be 'two-sided' or 'no-worse' (got 'up')"),
        ("rows[0].metrics[0].name", "p99_ttft", "must be 'output_throughput', 'median_tpot' or 'median_ttft'"),
        ("rows[0].metrics[0].baseline", float("inf"), "must be a finite number (got inf)"),
        ("rows[0].metrics[0].baseline_reps", 0, "must be greater than 0 (got 0)"),
        ("rows[0].serve.args", "--x", "must be a list (got '--x')"),
        ("rows[0].recipe", [1], "must be a mapping of keys (got a list)"),
        ("arms", {}, "no arm is called oracle; arms are none"),
        ("arms.oracle.engine.sha256", "A" * 64, f"must be 64 hex digits in lower case (got '{'A' * 64}')"),
        ("arms.oracle.engine.relabel.local", "CPU", "must be lower-case letters, digits and dots (got 'CPU')"),
        ("arms.oracle.engine.version", "latest", "must be a version such as 0.32.0 (got 'latest')"),
        ("arms.oracle.engine.mode", "conda", "must be 'source', 'precompiled', 'index' or 'file' (got 'conda')"),
        ("decision.looks", [3, 3], "looks must increase and start at 3 or more"),
        ("decision.looks", [2, 3], "looks must increase and start at 3 or more"),
        ("budgets.disk_gb", -1, "must be greater than 0 (got -1)"),
        ("question", "x" * 0, "must have at least 1 character (got '')"),
        ("device.name", {}, "must be a valid string (got a mapping)"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed_and_what_was_given(key: str, value: Any, message: str) -> None:
    assert refused(key, value)[0].startswith(f"case.yaml: {key}: {message}")


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, float("nan"), True, "0.1", None])
def test_a_tolerance_is_a_number_between_0_and_1(tolerance: Any) -> None:
    (line,) = refused("rows[0].metrics[0].tolerance", tolerance)
    assert line.startswith("case.yaml: rows[0].metrics[0].tolerance: must be ")


def test_a_number_in_quotes_is_refused_with_how_to_write_it() -> None:
    (line,) = refused("rows[0].cells[0].prompts", "16")
    assert line.endswith(
        "(got '16', which YAML reads as text: write a plain number without quotes, such as 16 or 0.1 (not 1e-1))"
    )


def test_an_exponent_that_yaml_reads_as_text_is_refused_with_how_to_write_it(path: Path) -> None:
    text = yaml.safe_dump(case_value()).replace("tolerance: 0.1", "tolerance: 1e-1", 1)
    assert "got '1e-1', which YAML reads as text: write a plain number" in read(path, text)


@pytest.mark.parametrize(
    ("written", "what"), [("0.32", "a number"), ("32", "a number"), ("no", "true or false"), ("2026-11-30", "a date")]
)
def test_a_version_that_yaml_reads_as_something_else_is_refused_with_a_hint_to_quote(
    path: Path, written: str, what: str
) -> None:
    text = yaml.safe_dump(case_value()).replace("version: '1.1'", f"version: {written}")
    line = read(path, text)
    assert line.startswith("arms.oracle.engine.version: must be a valid string (got ")
    assert line.endswith(f"which YAML reads as {what}: write it in quotes)")


@pytest.mark.parametrize("name", ["a b", "a/b", "../a", "-a", ".a", "", "a" * 65, "ä", "a;b", "a\nb"])
@pytest.mark.parametrize("key", ["case", "rows[0].id"])
def test_an_id_is_fit_for_a_file_name_and_a_command_line(key: str, name: str) -> None:
    assert refused(key, name)[0].startswith(f"case.yaml: {key}: must be {WORDS} (got ")


@pytest.mark.parametrize("name", ["a b", "a/b", "-a"])
def test_the_name_of_an_arm_or_a_checkpoint_is_an_id_too(name: str) -> None:
    value = case_value()
    value["arms"][name] = value["arms"]["previous"]
    value["checkpoints"][name] = value["checkpoints"]["tiny"]
    lines = str(refusal_of(case.parse, value, FILE)).splitlines()
    assert [line.split(": ")[1] for line in lines[:2]] == [f"arms.{name} (name)", f"checkpoints.{name} (name)"]
    assert WORDS in lines[0]


def test_an_id_of_digits_must_be_quoted() -> None:
    value = case_value()
    value["arms"][1] = value["arms"]["previous"]
    assert "YAML reads as a number: write it in quotes" in str(refusal_of(case.parse, value, FILE))


@pytest.mark.parametrize("key", ["advance", "arms", "rows", "budgets"])
def test_a_missing_key_is_required(key: str) -> None:
    value = case_value()
    del value[key]
    refusal = refusal_of(case.parse, value, FILE)
    assert (refusal.key, refusal.message) == (key, "this key is required")


def test_a_cell_has_prompts() -> None:
    assert refused("rows[0].cells[0]", {"concurrency": 1}) == [
        "case.yaml: rows[0].cells[0].prompts: this key is required"
    ]


@pytest.mark.parametrize("key", ["rows", "rows[0].cells", "rows[0].metrics"])
def test_a_list_that_says_what_to_measure_is_not_empty(key: str) -> None:
    assert refused(key, [])[0].startswith(f"case.yaml: {key}: must have at least 1 item")


def test_an_engine_has_a_lock_for_a_torch_build_that_exists() -> None:
    assert "locks: must have at least 1 item" in refused("arms.oracle.engine.locks", {})[0]
    (line,) = refused("arms.oracle.engine.locks", {"rocm": "x"})
    assert line == "case.yaml: arms.oracle.engine.locks.rocm (name): must be 'cpu' or 'index' (got 'rocm')"


def test_a_field_that_no_pin_declares_is_not_compared() -> None:
    (line,) = refused("arms.oracle.compare", {"torch": "release"})
    assert line.startswith("case.yaml: arms.oracle.compare.torch (name): must be 'vllm_runtime_version', ")


def test_the_fields_that_may_be_compared_are_the_versions_of_a_pin_block() -> None:
    versions = [name for name in (*pin.REQUIRED, *pin.OPTIONAL) if name.endswith("_version")]
    assert sorted(case.Version.__args__) == sorted(versions)


def test_a_baseline_says_how_many_reps_are_behind_it() -> None:
    claim = {"name": "median_tpot", "tolerance": 0.1, "baseline": 1.4}
    (line,) = refused("rows[0].metrics", [claim])
    assert line == (
        "case.yaml: rows[0].metrics[0]: a baseline needs baseline_reps: the reps behind it, or null if it is exact"
    )
    for reps in (3, None):
        assert small_case({"rows[0].metrics": [{**claim, "baseline_reps": reps}]})


# -- between keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rows[0].numerator", "newest", "no such arm: newest; arms are oracle, previous"),
        ("rows[0].denominator", "newest", "no such arm: newest; arms are oracle, previous"),
        ("client", "newest", "no such arm: newest; arms are oracle, previous"),
        ("rows[0].checkpoint", "big", "no such checkpoint: big; checkpoints are tiny"),
        ("rows[0].denominator", "oracle", "an arm is not compared with itself; name two arms"),
        ("case", "engines", "engines is a folder of the store; give the case another name"),
    ],
)
def test_a_name_leads_to_something(key: str, value: str, message: str) -> None:
    assert refused(key, value) == [f"case.yaml: {key}: {message}"]


def test_one_arm_is_called_oracle() -> None:
    value = case_value({"client": "previous", "rows[0].numerator": "newer"})
    value["arms"]["newer"] = value["arms"].pop("oracle")
    refusal = refusal_of(case.parse, value, FILE)
    assert (refusal.key, refusal.message) == ("arms", "no arm is called oracle; arms are newer, previous")


def test_a_lease_is_a_kernel_lock_unless_the_case_says_who_grants_the_device() -> None:
    assert small_case().lease.kind == "filelock"
    value = case_value()
    for lease in ({"kind": "slurm"}, {"kind": "command", "argv": ["rc", "run", "--"], "proof_env": "RC_LEASE"}):
        assert case.parse({**value, "lease": lease}, FILE).lease.model_dump() == lease
    for lease, key in (
        ({"kind": "mutex"}, "lease.kind: must be 'filelock', 'command' or 'slurm' (got 'mutex')"),
        ({"kind": "command", "argv": []}, "lease.argv: "),
        ({"kind": "slurm", "argv": ["x"]}, "lease.argv: unknown key; allowed are kind"),
    ):
        assert f"case.yaml: {key}" in str(refusal_of(case.parse, {**value, "lease": lease}, FILE))


def test_an_id_is_used_for_one_row() -> None:
    row = case_value()["rows"][0]
    assert refused("rows", [row, row]) == ["case.yaml: rows: serving is there twice; each is allowed once"]


def test_a_concurrency_is_used_for_one_cell() -> None:
    cells = [{"concurrency": 4, "prompts": 8}, {"concurrency": 4, "prompts": 16}]
    assert refused("rows[0].cells", cells) == ["case.yaml: rows[0].cells: c4 is there twice; each is allowed once"]


def test_a_metric_is_claimed_once() -> None:
    claim = {"name": "median_tpot", "tolerance": 0.1}
    (line,) = refused("rows[0].metrics", [claim, claim])
    assert line == "case.yaml: rows[0].metrics: median_tpot is there twice; each is allowed once"


def test_a_request_is_not_longer_than_the_model() -> None:
    (line,) = refused("rows[0].recipe.input_tokens", 2045)
    assert line == (
        "case.yaml: rows[0].recipe: input_tokens + output_tokens is 2049, but checkpoint tiny has 2048 positions"
    )
    assert small_case({"rows[0].recipe.input_tokens": 2044})


@pytest.mark.parametrize("words", [["--max-model-len", "19"], ["--max-model-len=19"]])
def test_a_request_is_not_longer_than_a_server_is_told_to_take(words: list[str]) -> None:
    """field-notes E7: such requests fail one by one, on the lease."""
    message = "input_tokens + output_tokens is 20, but --max-model-len of arm"
    assert refused("rows[0].serve.args", words) == [
        f"case.yaml: rows[0].recipe: {message} oracle is 19",
        f"case.yaml: rows[0].recipe: {message} previous is 19",
    ]
    assert refused("arms.previous.serve.args", words) == [f"case.yaml: rows[0].recipe: {message} previous is 19"]


def test_a_server_s_limit_in_other_words_than_digits_is_left_to_the_server() -> None:
    assert small_case({"rows[0].serve.args": ["--max-model-len", "4k"]})
    assert small_case({"rows[0].serve.args": ["--max-model-len"]})


# -- the file ------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_shown_not_only_the_first() -> None:
    changes = {"rows[0].cells[0].prompts": 0, "rows[0].metrics[1].tolerance": 2, "advance": "old", "unknown": 1}
    lines = str(refusal_of(case.parse, case_value(changes), FILE)).splitlines()
    keys = ["advance", "rows[0].cells[0].prompts", "rows[0].metrics[1].tolerance", "unknown"]
    assert [line.split(": ")[:2] for line in lines[:-1]] == [["case.yaml", key] for key in keys]


def test_all_names_that_lead_nowhere_are_shown() -> None:
    changes = {"client": "x", "rows[0].numerator": "y", "rows[0].checkpoint": "z"}
    lines = str(refusal_of(case.parse, case_value(changes), FILE)).splitlines()
    assert [line.split(": ")[1] for line in lines[:-1]] == ["client", "rows[0].numerator", "rows[0].checkpoint"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "(the whole file): must be a mapping of keys (got nothing)"),
        ("# only a comment\n", "(the whole file): must be a mapping of keys (got nothing)"),
        ("- a\n- b\n", "(the whole file): must be a mapping of keys (got a list)"),
        ("a case", "(the whole file): must be a mapping of keys (got 'a case')"),
        ("case: a\ncase: b\n", "line 2: cannot be read as YAML: key 'case' is given twice"),
        ("arms:\n  a: 1\n  a: 2\n", "line 3: cannot be read as YAML: key 'a' is given twice"),
        ("rows: [{1: a, true: b}]", "line 1: cannot be read as YAML: key True is given twice"),
        ("case: [a", "line 1: cannot be read as YAML: expected ',' or ']', but got '<stream end>'"),
        ("case: a\n\tb: c", "line 2: cannot be read as YAML: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2\n", "line 2: cannot be read as YAML: found another document"),
        ("? [a, b]\n: c\n", "line 1: cannot be read as YAML: a key must be a single word, not a list or a mapping"),
        ("? {a: b}\n: c\n", "line 1: cannot be read as YAML: a key must be a single word, not a list or a mapping"),
        ("case: *a\n", "line 1: cannot be read as YAML: found undefined alias 'a'"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", "line 3: cannot be read as YAML: merge keys (<<) are not allowed: write"),
        ("case: 2024-13-45\n", "line 1: cannot be read as YAML: not a value: 2024-13-45"),
        ("case: !!int x\n", "line 1: cannot be read as YAML: not a value: x"),
        ("case: !!bool x\n", "line 1: cannot be read as YAML: not a value: x"),
        ("case: !!timestamp x\n", "line 1: cannot be read as YAML: not a value: x"),
        (f"case: {'9' * 5000}\n", f"line 1: cannot be read as YAML: not a value: {'9' * 80}"),
        ("case: \x00", "cannot be read as YAML: unacceptable character"),
        ("[" * 600, "cannot be read as YAML: nested too deeply"),
        ("{a: " * 600 + "1" + "}" * 600, "cannot be read as YAML: nested too deeply"),
    ],
)
def test_a_file_that_is_no_case_is_refused_with_the_line(path: Path, text: str, message: str) -> None:
    assert read(path, text).startswith(message)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!mine"])
def test_a_tag_that_could_run_code_is_refused(path: Path, tag: str) -> None:
    message = "line 1: cannot be read as YAML: could not determine a constructor for the tag"
    assert read(path, f"case: {tag} [touch hacked]\n").startswith(message)


def test_an_alias_bomb_is_refused_without_being_unfolded(path: Path) -> None:
    lines = ["b0: &b0 [x, x]", *(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]" for n in range(1, 40))]
    assert read(path, "\n".join([*lines, "case: *b39"])).startswith("case: must be a valid string (got a list)")


def test_a_value_that_holds_itself_is_refused(path: Path) -> None:
    assert "rows[0]: must be a mapping of keys (got a list)" in str(
        refusal_of(case.parse, yaml.safe_load("rows: &r [*r]"), FILE)
    )
    assert read(path, "rows: &r [*r]").startswith("case: this key is required")


def test_a_file_that_is_not_there_or_no_text_is_refused(path: Path) -> None:
    assert refusal_of(case.load, path).message == "no such file"
    path.write_bytes(b"case: \xff\n")
    assert refusal_of(case.load, path).message.startswith("not UTF-8 text: ")
    path.unlink()
    path.mkdir()
    assert refusal_of(case.load, path).message == "cannot be read: Is a directory"


def test_a_long_value_is_not_shown_in_full() -> None:
    (line,) = refused("case", "x y" * 1000)
    assert len(line) < 300


# -- the published schema ------------------------------------------------------------------------


def test_the_published_schema_is_the_one_that_the_models_make(tmp_path: Path) -> None:
    """When this fails: make schemas."""
    write_schemas.write(tmp_path)
    assert PUBLISHED.read_bytes() == (tmp_path / "case.schema.json").read_bytes()


def test_every_property_of_the_schema_is_described() -> None:
    schema = json.loads(PUBLISHED.read_text())
    Draft202012Validator.check_schema(schema)
    models = [schema, *schema["$defs"].values()]
    bare = [
        f"{model['title']}.{name}"
        for model in models
        for name, property_ in model["properties"].items()
        if not property_.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown", 1),
        ("rows[0].cells[0].unknown", 1),
        ("rows[0].cells[0].prompts", "16"),
        ("rows[0].metrics[0].tolerance", 0),
        ("arms.oracle.compare", {"torch": "release"}),
        ("arms.a b", case_value()["arms"]["oracle"]),
        ("rows", []),
    ],
)
def test_the_schema_alone_refuses_what_the_models_refuse(key: str, value: Any) -> None:
    validator = Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert validator.is_valid(case_value())
    assert not validator.is_valid(case_value({key: value}))
    refused(key, value)


def test_the_schema_is_made_by_a_thin_script() -> None:
    tree = ast.parse(Path(write_schemas.__file__).read_text())
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["write"]
