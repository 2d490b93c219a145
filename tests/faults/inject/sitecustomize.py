"""Faults inside the process of a rule's script: Python imports this file by itself where PYTHONPATH names its folder.

FAULT_STAGE is the script, without `.py`, that is meant; every other process is left alone. FAULT is what
befalls it. The pipeline knows nothing of this file.
"""

import fcntl
import os
import pathlib
import signal
import sys
import time

_TIME, _GMTIME, _FSYNC, _REPLACE, _FLOCK = time.time, time.gmtime, os.fsync, os.replace, fcntl.flock
HOUR_S = 3600
STEP_AT = 40  # readings of the wall clock after which it is put back


def killed_before_its_file_has_its_name() -> None:
    """SIGKILL when all is written and the rename is due."""

    def replace(source, target, **words):
        if not pathlib.Path(target).name.startswith("."):
            os.kill(os.getpid(), signal.SIGKILL)
        return _REPLACE(source, target, **words)

    os.replace = replace


def clock_put_back() -> None:
    """In the middle of its work the wall clock goes back by an hour."""
    asked = [0]

    def now() -> float:
        asked[0] += 1
        return _TIME() - HOUR_S * (asked[0] > STEP_AT)

    time.time = now
    time.gmtime = lambda seconds=None: _GMTIME(now() if seconds is None else seconds)


def slow_disk() -> None:
    """Every flush takes a while."""

    def fsync(descriptor):
        time.sleep(0.2)
        return _FSYNC(descriptor)

    os.fsync = fsync


def hung_lock() -> None:
    """A lock that is neither given nor refused, as one of a file server that is gone."""

    def flock(descriptor, operation):
        if operation & fcntl.LOCK_UN:
            return _FLOCK(descriptor, operation)
        print("the lock hangs", file=sys.stderr, flush=True)
        while True:
            time.sleep(HOUR_S)

    fcntl.flock = flock


def no_memory() -> None:
    """An allocation fails, as it does under a limit of the address space."""

    def replace(source, target, **words):
        raise MemoryError

    os.replace = replace


if any(pathlib.Path(word).name == f"{os.environ.get('FAULT_STAGE')}.py" for word in sys.orig_argv[1:2]):
    globals()[os.environ["FAULT"]]()
