"""Starts a command that nothing of ours is the parent of: fork, tell its pid, and leave it to init.

Arguments: a file descriptor for the pid, then the command. The caller has made the session already.
"""

import os
import sys


def main() -> None:
    writing, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(writing, False)
    ready, go = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ready)
        os.write(writing, str(pid).encode())
        os._exit(0)  # the end of `go` lets the command begin: its parent is init by then
    os.close(go)
    os.read(ready, 1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", flush=True)
        os._exit(127)


if __name__ == "__main__":
    main()
