"""The span plugin, in processes of its own as in an engine: what it sees, and that it never breaks anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders import put_text

from pinproof import processes, spans
from pinproof.spans import Process, Spans

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENGINE = {
    "engine/__init__.py": "",
    "engine/heavy.py": "raise SystemExit('imported although nobody asked for it')",
    "engine/worker.py": """
        from engine.warm import compile_all, outer
        class Base:
            def load(self): return "loaded"
        class Worker(Base):
            @classmethod
            def make(cls): return cls
            @staticmethod
            def add(a, b): return a + b
            def fail(self): raise KeyError("no layer")
            def steps(self): yield 1
    """,
    "engine/warm.py": """
        import functools
        def inner(key): return key
        def outer(keys): return [inner(key) for key in keys]
        def compile_all(): return "compiled"
        def down(n): return 0 if n == 0 else 1 + down(n - 1)
        @functools.lru_cache
        def cached(): return 1
    """,
    "engine/broken.py": "def f(): ...\nraise ImportError('libcuda is missing')",
}
LOAD = "import pinproof_spans; pinproof_spans.load(); pinproof_spans.load()\n"


@dataclass(frozen=True)
class Told:
    status: int
    output: str
    found: Spans

    @property
    def process(self) -> Process:
        (process,) = self.found.processes
        return process

    def calls(self) -> list[str]:
        return [span.callable.partition(":")[2] for span in self.process.spans]


class Engine:
    """A place with the engine's modules, where programs are run under the plugin."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "spans"
        self.folder.mkdir()
        for name, text in ENGINE.items():
            put_text(root / "site" / name, textwrap.dedent(text))
        self.spawned = time.monotonic()

    def start(self, program: str, names: list[str], **env: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(self.root / "site"), str(SCRIPTS)])
        return subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(program)],
            env={"PYTHONPATH": path, "PINPROOF_MARKER": "m", **spans.environment(self.folder, names), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def told(self, process: subprocess.Popen[str]) -> Told:
        output, _ = process.communicate(timeout=60)
        return Told(process.returncode, output.strip(), self.read())

    def read(self) -> Spans:
        return spans.read(self.folder, marker="m", spawned=self.spawned, boot=processes.boot_id())

    def run(self, program: str, *names: str, **env: str) -> Told:
        return self.told(self.start(LOAD + textwrap.dedent(program), [f"engine.{name}" for name in names], **env))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_a_function_is_wrapped_before_another_module_binds_it(engine: Engine) -> None:
    told = engine.run("import engine.worker as w; print(w.compile_all(), w.outer([1]))", "warm:compile_all")
    assert told.output == "compiled [1]"
    (span,) = told.process.spans
    assert (span.callable, span.returned, span.parent) == ("engine.warm:compile_all", True, None)
    assert not told.process.wrapped["engine.warm:compile_all"].late
    assert told.process.began <= told.process.loaded <= span.begin <= span.end <= told.process.last


def test_a_function_may_be_named_in_the_module_that_binds_it(engine: Engine) -> None:
    program = "import engine.worker as w, engine.warm; w.compile_all(); engine.warm.compile_all()"
    told = engine.run(program, "worker:compile_all")
    assert [span.callable for span in told.process.spans] == ["engine.worker:compile_all"]


def test_calls_in_calls_are_nested(engine: Engine) -> None:
    told = engine.run("import engine.worker as w; w.outer([1, 2])", "warm:outer", "warm:inner")
    assert [(span.callable[12:], span.parent) for span in told.process.spans] == [
        ("outer", None),
        ("inner", 1),
        ("inner", 1),
    ]


def test_methods_are_wrapped_as_what_they_are(engine: Engine) -> None:
    program = "from engine.worker import Worker as W; w = W(); print(w.load(), W.make() is W, w.add(1, 2), W.add(3, 4))"
    told = engine.run(program, "worker:Worker.load", "worker:Worker.make", "worker:Worker.add")
    assert told.output == "loaded True 3 7"
    assert told.calls() == ["Worker.load", "Worker.make", "Worker.add", "Worker.add"]


def test_a_function_stays_what_it_looks_like(engine: Engine) -> None:
    program = """
        import inspect, pickle, engine.warm as w
        same = pickle.loads(pickle.dumps(w.outer)) is w.outer
        print(w.outer.__name__, w.outer.__module__, inspect.signature(w.outer), same)
        print(inspect.getsource(w).lstrip().startswith("import functools"), type(w.__loader__).__name__)
    """
    told = engine.run(program, "warm:outer")
    assert told.output.splitlines() == ["outer engine.warm (keys) True", "True SourceFileLoader"]


def test_an_exception_passes_through_unchanged_and_is_noted(engine: Engine) -> None:
    program = """
        from engine.worker import Worker
        try: Worker().fail()
        except KeyError as error: print(error.args, error.__cause__, error.__context__)
    """
    told = engine.run(program, "worker:Worker.fail")
    assert told.output == "('no layer',) None None"
    (span,) = told.process.spans
    assert (span.exception, span.returned) == ("KeyError: 'no layer'", False)


@pytest.mark.parametrize("way", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_what_is_no_error_ends_a_call_too(engine: Engine, way: str) -> None:
    put_text(engine.root / "site/engine/leaving.py", f"import sys\ndef leave(): {way}\n")
    told = engine.run("from engine.leaving import leave; leave()", "leaving:leave")
    assert told.status == (3 if "exit" in way else -signal.SIGINT)
    assert told.process.spans[0].exception.partition(":")[0] in ("SystemExit", "KeyboardInterrupt")


def test_nothing_is_imported_that_the_engine_does_not_import(engine: Engine) -> None:
    told = engine.run("import sys; print([n for n in sys.modules if n.startswith('engine')])", "heavy:f", "worker:W.x")
    assert (told.status, told.output) == (0, "[]")
    assert (told.process.wrapped, told.process.absent) == ({}, {})


def test_a_name_that_does_not_exist_is_absent(engine: Engine) -> None:
    names = (
        "warm:gone",
        "worker:Gone.load",
        "worker:Worker.gone",
        "no_such:f",
        "warm.deeper:f",
        "worker:Worker.load.x",
    )
    told = engine.run("import engine.worker", *names)
    assert told.process.absent == {
        "engine.warm:gone": "engine.warm has no gone",
        "engine.worker:Gone.load": "engine.worker has no Gone.load",
        "engine.worker:Worker.gone": "engine.worker has no Worker.gone",
        "engine.worker:Worker.load.x": "engine.worker has no Worker.load.x",
        "engine.no_such:f": "there is no module engine.no_such",
        "engine.warm.deeper:f": "there is no module engine.warm.deeper",
    }


def test_what_is_no_plain_function_is_left_alone(engine: Engine) -> None:
    told = engine.run("import engine.worker, engine.warm as w; w.cached.cache_clear()", "warm:cached", "worker:Worker")
    assert told.status == 0
    assert told.process.unwrappable == {
        "engine.warm:cached": "a _lru_cache_wrapper, not a function",
        "engine.worker:Worker": "a type, not a function",
    }


def test_a_module_that_cannot_be_imported_raises_as_it_would_and_is_noted(engine: Engine) -> None:
    told = engine.run("try: import engine.broken\nexcept ImportError as error: print(error)", "broken:f")
    assert told.output == "libcuda is missing"
    assert told.process.import_failed == {"engine.broken:f": "ImportError: libcuda is missing"}


def test_a_module_that_was_there_before_is_wrapped_late_also_where_its_function_is_bound(engine: Engine) -> None:
    program = "import engine.worker as w\n" + LOAD + "w.compile_all(); w.Worker().load()"
    told = engine.told(engine.start(program, ["engine.warm:compile_all", "engine.worker:Worker.load"]))
    wrapped = told.process.wrapped
    assert told.calls() == ["compile_all", "Worker.load"]
    assert wrapped["engine.warm:compile_all"].rebound == ("engine.worker:compile_all",)
    assert [(one.late, one.sure) for one in wrapped.values()] == [(True, False), (True, False)]


def test_a_generator_is_said_to_be_one(engine: Engine) -> None:
    told = engine.run("from engine.worker import Worker; print(list(Worker().steps()))", "worker:Worker.steps")
    assert (told.output, told.process.spans[0].deferred) == ("[1]", True)


def test_ten_thousand_calls_are_summed_up(engine: Engine) -> None:
    program = """
        from engine.warm import inner
        for n in range(10_000): inner(n)
    """
    told = engine.run(program, "warm:inner")
    (more,) = told.process.more
    assert len(told.process.spans) + more.calls == 10_000
    assert (more.returned, more.raised) == (more.calls, 0)
    assert (engine.folder / told.process.file).stat().st_size < 200_000


def test_a_recursion_ends_as_it_would_and_its_time_counts_once(engine: Engine) -> None:
    told = engine.run("from engine.warm import down; print(down(300))", "warm:down")
    (more,) = told.process.more
    assert (told.output, more.calls, more.returned) == ("300", 301 - len(told.process.spans), more.calls)
    assert more.seconds <= more.end - more.begin + 1e-6
    assert [span.parent for span in told.process.spans] == [None, *range(1, len(told.process.spans))]


def test_a_process_that_dies_inside_leaves_a_begin_without_an_end(engine: Engine) -> None:
    put_text(engine.root / "site/engine/dying.py", "import os\ndef die(): os.kill(os.getpid(), 9)\n")
    told = engine.run("from engine.dying import die; die()", "dying:die")
    assert told.status == -signal.SIGKILL
    assert [span.callable for span in told.process.open] == ["engine.dying:die"]
    assert not told.process.exited


def test_a_fork_goes_on_in_a_file_of_its_own(engine: Engine) -> None:
    put_text(engine.root / "site/engine/forking.py", "import os\ndef fork(): return os.fork()\ndef after(): ...\n")
    program = """
        import os
        from engine.forking import fork, after
        if child := fork(): os.waitpid(child, 0)
        after()
    """
    told = engine.run(program, "forking:fork", "forking:after")
    parent, child = sorted(told.found.processes, key=lambda one: one.forked)
    assert (child.parent, told.found.damaged) == (parent.pid, ())
    assert [span.callable[15:] for span in parent.spans] == ["fork", "after"]
    assert [(span.callable[15:], span.parent) for span in child.spans] == [("after", None)]


def test_children_that_are_started_anew_load_it_themselves(engine: Engine) -> None:
    put_text(
        engine.root / "site/engine/child.py",
        "def work():\n    import pinproof_spans, engine.warm\n    pinproof_spans.load()\n"
        "    engine.warm.compile_all()\n",
    )
    program = """
        import multiprocessing, engine.child
        if __name__ == "__main__":
            one = multiprocessing.get_context("spawn").Process(target=engine.child.work, name="EngineCore_DP1")
            one.start(); one.join()
    """
    told = engine.run(program, "warm:compile_all")
    by_name = {process.name.partition(" ")[0]: len(process.spans) for process in told.found.processes}
    assert by_name == {"MainProcess": 0, "EngineCore_DP1": 1}


def test_without_its_variable_it_does_nothing(engine: Engine) -> None:
    told = engine.run("import engine.worker as w; print(w.compile_all())", "warm:compile_all", PINPROOF_SPANS="")
    assert (told.output, told.found.processes) == ("compiled", ())


@pytest.mark.parametrize("names", ["", "{", "7", '[7, "warm", "a..b:c", "engine.warm:compile_all"]'])
def test_a_bad_list_of_names_is_noted_and_swallowed(engine: Engine, names: str) -> None:
    told = engine.run("import engine.worker as w; print(w.compile_all())", PINPROOF_SPAN_NAMES=names)
    assert (told.status, told.output) == (0, "compiled")
    assert len(told.process.problems) == 1
    assert "PINPROOF_SPAN_NAMES" in told.process.problems[0]
    assert len(told.process.spans) == ("compile_all" in names)


def test_a_folder_that_is_not_there_is_said_once_and_the_engine_goes_on(engine: Engine) -> None:
    gone = str(engine.root / "gone")
    told = engine.run("import engine.worker as w; print(w.compile_all())", "warm:compile_all", PINPROOF_SPANS=gone)
    said, result = told.output.splitlines()
    assert said.startswith("pinproof_spans: FileNotFoundError")
    assert (told.status, result, told.found.processes) == (0, "compiled", ())


def test_a_disk_that_takes_half_a_line_leaves_no_second_half(engine: Engine) -> None:
    program = """
        import os
        from engine.warm import compile_all
        write = os.write
        os.write = lambda file, data: write(file, data[:9]) if file > 2 else write(file, data)
        compile_all(); print(compile_all())
    """
    told = engine.run(program, "warm:compile_all")
    assert told.output.splitlines()[-1] == "compiled"
    assert (told.process.torn, told.process.spans) == (True, ())
    assert told.output.count("pinproof_spans: OSError") == 1


def test_threads_have_nestings_of_their_own(engine: Engine) -> None:
    program = """
        import threading
        from engine.warm import outer
        threads = [threading.Thread(target=outer, args=([1],)) for _ in range(8)]
        for one in threads: one.start()
        for one in threads: one.join()
    """
    told = engine.run(program, "warm:outer", "warm:inner")
    by_id = {span.id: span for span in told.process.spans}
    inner = [span for span in by_id.values() if span.parent is not None]
    assert len(inner) == 8
    assert all(by_id[span.parent].thread == span.thread for span in inner)
