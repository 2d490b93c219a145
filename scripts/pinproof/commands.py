"""Running installers and compilers: argument lists, never a shell, output kept in a log."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """A command that ended: its exit status and what it printed (stdout and stderr together)."""

    argv: tuple[str, ...]
    status: int
    output: str

    @property
    def tail(self) -> str:
        """The last lines, for a message."""
        return "\n".join(self.output.rstrip().splitlines()[-12:])

    @property
    def ended(self) -> str:
        """How it ended, in words: a signal has a name, not a number."""
        if self.status < 0:
            names = {one.value: one.name for one in signal.Signals}
            return f"was killed by {names.get(-self.status, f'signal {-self.status}')}"
        return f"exited with {self.status}"


def run(
    argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Finished:
    """Run a command to its end and append what it prints to `log`.

    `env` is the whole environment; by default the caller's. A command that cannot be started ends
    with status 127, as in a shell.

    The command stays in the caller's process group, so that Ctrl-C reaches it; when the caller is
    interrupted the command is ended before the interruption goes on.
    """
    words = tuple(str(word) for word in argv)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a+b") as stream:
        stream.write(f"$ {' '.join(words)}\n".encode())
        stream.flush()
        start = stream.tell()
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=cwd, env=env
            )
        except OSError as error:
            text = f"{error.filename or words[0]}: cannot be started: {error.strerror}\n"
            stream.write(text.encode())
            return Finished(words, 127, text)
        try:
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        stream.seek(start)
        return Finished(words, status, stream.read().decode(errors="replace"))
