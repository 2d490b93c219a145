"""history.md and history.svg: verdicts of several pins side by side."""

import argparse
import shlex
import sys
from pathlib import Path

from pinproof import cli, figures, records, trend
from pinproof.artifacts import Artifacts
from pinproof.measures import MEASURES


def main(task: cli.Task) -> None:
    page = Artifacts(task.layout).history
    past = trend.read(trend.found([Path(word) for word in shlex.split(OPTIONS.verdicts)] or [task.layout.results]))
    records.write_text(page, text := trend.page(past))
    panels = {
        f"{case}, {row}: {cell}, {MEASURES[name].title}": decided
        for case, row in trend.keys(past)
        for (cell, name), decided in trend.points(past, (case, row)).items()
    }
    figures.save(figures.trend(panels, [one.name for one in past]), page.with_suffix(".svg"))
    print(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--verdicts", default="", help="files and folders, as words of a shell")
    OPTIONS, sys.argv[1:] = parser.parse_known_args()
    cli.run(main)
