"""What another interpreter has installed; run by that interpreter.

    PYTHON -I read_provided.py OUTPUT.json

Standard library only. Every distribution: its name, version, requirements, where its files lie, and
its files relative to that place. Nothing is imported from what is installed.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path


def main(output):
    """Write what is installed to `output`."""
    found = {}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if not name or name in found:  # the first on the path is the one that is imported
            continue
        found[name] = {
            "version": one.version,
            "requires": list(one.requires or ()),
            "place": str(one.locate_file("")),
            "files": [file.as_posix() for file in one.files or ()],
        }
    body = {"python": list(sys.version_info[:2]), "distributions": found}
    Path(output).write_text(json.dumps(body), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
