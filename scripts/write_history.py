"""history.md and history.svg: verdicts of several pins side by side."""

import shlex
from pathlib import Path

from pinproof import cli, figures, records, trend
from pinproof.artifacts import Artifacts
from pinproof.measures import MEASURES


def main(task: cli.Task) -> None:
    page = Artifacts(task.layout).history
    past = trend.read(trend.found([Path(word) for word in OPTIONS.verdicts or ()] or [task.layout.results]))
    records.write_text(page, text := trend.page(past))
    panels = {
        f"{case}, {row}: {cell}, {MEASURES[name].title}": decided
        for case, row in trend.keys(past)
        for (cell, name), decided in trend.points(past, (case, row)).items()
    }
    figures.save(figures.trend(panels, [one.name for one in past]), page.with_suffix(".svg"))
    print(text)


if __name__ == "__main__":
    OPTIONS = cli.options(verdicts=shlex.split)  # files and folders, as words of a shell
    cli.run(main)
