"""What would these numbers have said? Judge a file of reps and a plan, without an engine."""

import argparse
import json
import sys
from pathlib import Path

from pinproof import question
from pinproof.reasons import Refusal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="YAML or JSON with plan, noise, first and maybe second")
    parser.add_argument("--json", action="store_true", help="print every figure instead of words")
    arguments = parser.parse_args()
    try:
        judged = question.answer(question.read(arguments.file))
    except Refusal as refusal:
        sys.exit(f"refused: {refusal}")
    figures = json.dumps(judged.as_record(), indent=1, sort_keys=True)
    print(figures if arguments.json else "\n".join(question.words(judged)))


if __name__ == "__main__":
    main()
