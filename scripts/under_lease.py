"""Runs a script of the workflow under the wrapper that grants the device; see pinproof/wrapper.py."""

import os
import sys
from pathlib import Path

from pinproof import wrapper
from pinproof.reasons import Refusal


def main() -> None:
    try:
        argv, environment = wrapper.enter(Path(sys.argv[1]))
    except Refusal as refusal:
        sys.exit(f"refused: {refusal}")
    os.execve(argv[0], argv, environment)


if __name__ == "__main__":
    main()
