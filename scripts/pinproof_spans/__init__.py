"""The span plugin: times named callables inside every process of an engine.

A wheel of its own (see pinproof/spanwheel.py) that vLLM loads through the entry point group
`vllm.general_plugins`, in its API server, in each engine core and in each worker. Without the
environment variable PINPROOF_SPANS it does nothing at all.

PINPROOF_SPANS       folder in which every process writes `<pid>-<start in clock ticks>.jsonl`
PINPROOF_SPAN_NAMES  JSON list of callables, `module:name` or `module:Class.method`

A callable is wrapped when its module has been executed and before anyone who imports it can bind
it, so nothing is imported earlier than the engine would. Every line is written at once by one
system call: a process that dies inside a call leaves a begin without an end. Times are seconds of
CLOCK_MONOTONIC, one clock for all processes of a boot; the wall clock stands beside it.

The engine comes first: what fails in here is written down (or, where there is no file, said once on
standard error) and swallowed; what the callable raises passes through. Not for callables that a
compiler traces, or that are called all the time: a call costs some ten microseconds.
"""

from __future__ import annotations

import time

IMPORTED = time.monotonic()  # before anything else: what the plugin costs counts from here
_loaded = False


def load() -> None:
    """The entry point; vLLM may call it several times in a process."""
    global _loaded  # noqa: PLW0603
    import os

    folder = os.environ.get("PINPROOF_SPANS")
    if not folder or _loaded:
        return
    _loaded = True
    try:
        from pinproof_spans import wrapping

        wrapping.start(folder, os.environ.get("PINPROOF_SPAN_NAMES", ""), IMPORTED)
    except Exception as error:
        import contextlib
        import sys

        with contextlib.suppress(Exception):
            sys.stderr.write(f"pinproof_spans: {type(error).__name__}: {error}\n")
