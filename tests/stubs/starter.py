"""Starts calls of snakemake for the tests: it imports snakemake and libraries once, and forks for every call.

A call that plans spends three quarters of its time on imports. A forked one is a process in a
session of its own with the environment, folder and arguments of the call, and runs snakemake's own
command line. Requests come as JSON lines on standard input: argv (after `snakemake`), cwd, env, log.
The reply is the pid; the exit status is written beside the log when the call has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Fork for every request, until there are no more."""
    import snakemake.cli

    import_libraries()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    for line in sys.stdin:
        request = json.loads(line)
        read, write = os.pipe()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(read)
            watch(request, write, snakemake.cli.main)
        os.close(write)
        with os.fdopen(read) as stream:
            print(stream.read(), flush=True)


def import_libraries() -> None:
    """Import what pinproof imports, and forget pinproof itself: a call takes that from its own checkout."""
    scripts = str(Path(__file__).parents[2] / "scripts")
    sys.path.insert(0, scripts)
    importlib.import_module("pinproof.series")
    sys.path.remove(scripts)
    for name in [name for name in sys.modules if name.split(".")[0] == "pinproof"]:
        del sys.modules[name]


def watch(request: dict, write: int, run) -> None:
    """Fork the call, tell its pid, and write its status when it has ended."""
    pid = os.fork()
    if pid == 0:
        os.close(write)
        call(request, run)
    os.write(write, str(pid).encode())
    os.close(write)
    _, status = os.waitpid(pid, 0)
    path = Path(request["log"]).with_suffix(".status")
    path.with_suffix(".part").write_text(str(os.waitstatus_to_exitcode(status)))
    path.with_suffix(".part").rename(path)
    os._exit(0)


def call(request: dict, run) -> None:
    """Become the call."""
    status = 1
    try:
        os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for end, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, end)
        sys.argv = ["snakemake", *request["argv"]]
        run(request["argv"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
