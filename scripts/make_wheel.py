"""wheel.json and the wheel itself: relabelled where its distribution is not called `vllm`."""

import shutil

from pinproof import cli, preflight, records, wheel


def main(task: cli.Task) -> None:
    preflight.require_clear(task.layout.preflight)
    place = task.layout.engines()[task.id]
    source = records.read(place.source, "source")["wheel"]
    file = place.folder / "source" / source["file"]
    folder = place.folder / "wheel"
    relabel = place.arm.engine.relabel
    if relabel:
        task.say(f"relabelling {file.name} as {relabel.name} +{relabel.local}")
        made = wheel.relabel(file, folder, relabel.name, relabel.local)
    else:
        made = folder / file.name
        with records.replacing(made) as temporary:
            shutil.copyfile(file, temporary)
    facts = wheel.verify(made)
    body = {"wheel": facts.as_record(), "made_from": {"file": source["file"], "sha256": source["sha256"]}}
    records.write(place.wheel, "wheel", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main, needs="engine")
