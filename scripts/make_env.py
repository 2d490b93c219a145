"""env/: the engine's environment, from its lock and its wheel; the marker inside is written last."""

from pinproof import cli, environment, records


def main(task: cli.Task) -> None:
    place = task.layout.engines()[task.id]
    made = records.read(place.wheel, "wheel")["wheel"]
    task.say(f"installing {place.lock.name} and {made['file']}")
    environment.create(
        place.env,
        place.lock,
        place.folder / "wheel" / made["file"],
        made["sha256"],
        log=task.log,
        has=place.arm.engine.provided,
        spans=task.layout.has_spans,
    )
    task.say("environment is whole")


if __name__ == "__main__":
    cli.run(main, needs="engine")
