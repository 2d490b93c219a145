"""wheel.json and the wheel itself: built here, or released and relabelled where it is not called `vllm`."""

import shutil
from pathlib import Path

from pinproof import builds, cli, preflight, records, wheel
from pinproof.engines import BuiltEngine


def main(task: cli.Task) -> None:
    preflight.require_clear(task.layout.preflight)
    place = task.layout.engines()[task.id]
    if isinstance(place.arm.engine, BuiltEngine):
        task.say(f"building by mode {place.arm.engine.mode}")
        made, origin, how = builds.make(task.layout, place, log=task.log)
    else:
        (made, origin), how = released(task), {}
    body = {"wheel": wheel.verify(made).as_record(), "made_from": origin}
    records.write(place.wheel, "wheel", body, provenance={**how, **cli.provenance()})


def released(task: cli.Task) -> tuple[Path, dict]:
    """The wheel of an engine that somebody else made, and what it was made from."""
    place = task.layout.engines()[task.id]
    source = records.read(place.source, "source")["wheel"]
    file = place.folder / "source" / source["file"]
    folder = place.folder / "wheel"
    origin = {"file": source["file"], "sha256": source["sha256"]}
    if relabel := place.arm.engine.relabel:
        task.say(f"relabelling {file.name} as {relabel.name} +{relabel.local}")
        return wheel.relabel(file, folder, relabel.name, relabel.local), origin
    made = folder / file.name
    with records.replacing(made) as temporary:
        shutil.copyfile(file, temporary)
    return made, origin


if __name__ == "__main__":
    cli.run(main, needs="engine")
