"""Running installers and compilers: no shell, everything in the log, the end in words."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinproof import commands


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "stage.log"


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def test_both_outputs_and_the_status_are_kept(log: Path) -> None:
    text = "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n'); raise SystemExit(3)"
    finished = commands.run(python(text), log=log)
    assert (finished.status, finished.output, finished.ended) == (3, "out\nerr\n", "exited with 3")


def test_the_log_holds_the_command_and_what_it_printed_after_what_was_there(log: Path) -> None:
    commands.run(python("print(1)"), log=log)
    finished = commands.run(python("print(2)"), log=log)
    assert finished.output == "2\n"
    assert log.read_text().splitlines()[1::2] == ["1", "2"]
    assert log.read_text().startswith(f"$ {sys.executable} -S -c print(1)\n")


def test_a_word_is_never_read_by_a_shell(log: Path) -> None:
    word = "$(touch hacked); `x` *"
    finished = commands.run([*python("import sys; print(sys.argv[1])"), word], log=log, cwd=log.parents[1])
    assert finished.output == f"{word}\n"
    assert not (log.parents[1] / "hacked").exists()


def test_a_signal_has_a_name(log: Path) -> None:
    finished = commands.run(python("import os; os.kill(os.getpid(), 9)"), log=log)
    assert finished.ended == "was killed by SIGKILL"


def test_a_signal_without_a_name_is_a_number() -> None:
    assert commands.Finished((), -40, "").ended == "was killed by signal 40"


def test_a_command_that_does_not_exist_ends_with_127_and_says_so(log: Path) -> None:
    finished = commands.run(["/no/such/uv", "venv"], log=log)
    assert finished.status == 127
    assert finished.tail == "/no/such/uv: cannot be started: No such file or directory"
    assert finished.tail in log.read_text()


def test_the_environment_is_the_given_one_alone(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "1")
    finished = commands.run(python("import os; print(os.environ.get('SECRET_OF_THE_CALLER'))"), log=log, env={})
    assert finished.output == "None\n"


@pytest.fixture
def _typed(tmp_path: Path) -> Iterator[None]:
    """The caller's own standard input holds something."""
    (tmp_path / "typed").write_text("yes")
    own = os.dup(0)
    with open(tmp_path / "typed") as stream:
        os.dup2(stream.fileno(), 0)
    yield
    os.dup2(own, 0)
    os.close(own)


@pytest.mark.usefixtures("_typed")
def test_a_command_is_never_answered_by_the_caller_s_input(log: Path) -> None:
    assert commands.run(python("import sys; print(repr(sys.stdin.read()))"), log=log).output == "''\n"


def test_output_that_is_no_text_does_not_break_the_log(log: Path) -> None:
    assert commands.run(python("import os; os.write(1, b'a\\xffb')"), log=log).output == "a\ufffdb"


def test_the_tail_is_the_last_twelve_lines() -> None:
    output = "".join(f"{number}\n" for number in range(30))
    assert commands.Finished((), 1, output).tail.splitlines() == [str(number) for number in range(18, 30)]
