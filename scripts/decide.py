"""What would these numbers have said? Judge a file of reps and a plan, without an engine."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pinproof import published, question
from pinproof.reasons import Refusal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="YAML or JSON: plan, noise and reps (docs/decision.md shows one)")
    parser.add_argument("--published", action="store_true", help="the file holds published ratios: what each needs")
    parser.add_argument("--json", action="store_true", help="print every figure instead of words")
    arguments = parser.parse_args()
    try:
        record, words = (ask if arguments.published else judge)(arguments.file)
    except Refusal as refusal:
        sys.exit(f"refused: {refusal}")
    print(json.dumps(record, indent=1, sort_keys=True) if arguments.json else "\n".join(words))


def judge(file: Path) -> tuple[Any, Iterable[str]]:
    judged = question.answer(question.read(file))
    return judged.as_record(), question.words(judged)


def ask(file: Path) -> tuple[Any, Iterable[str]]:
    record = published.read(file)
    rows = published.needed(record)
    return [row.as_record() for row in rows], published.words(record, rows)


if __name__ == "__main__":
    main()
