"""bundle/: what a worker without a network needs, in parts; manifest.json names every file by digest."""

from pinproof import bundle, cli, records


def main(task: cli.Task) -> None:
    task.say("fetching the wheels of the workflow and of every arm for the worker")
    body = bundle.make(task.layout, log=task.log)
    size = sum(part["bytes"] for part in body["parts"])
    task.say(f"{len(body['parts'])} parts, {size / 1e6:.0f} MB in all, {len(body['files'])} files")
    records.write(task.layout.bundle, "bundle", body, provenance=cli.provenance())


if __name__ == "__main__":
    cli.run(main)
