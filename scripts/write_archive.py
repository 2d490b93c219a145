"""verdict.tar.zst: all that the verdict names by digest, scrubbed, reproducible, verified before it is named."""

from pinproof import archive, cli
from pinproof.artifacts import Artifacts


def main(task: cli.Task) -> None:
    target = Artifacts(task.layout).archive
    index = archive.make(task.layout, target)
    scrubbed = sum("original" in one for one in index["files"].values())
    task.say(f"{target}: {target.stat().st_size} bytes, {len(index['files'])} files, {scrubbed} of them scrubbed")


if __name__ == "__main__":
    cli.run(main)
