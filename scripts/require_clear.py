"""Ends well only when the preflight found nothing in the way."""

from pinproof import cli, preflight


def main(task: cli.Task) -> None:
    preflight.require_clear(task.layout.preflight)


if __name__ == "__main__":
    cli.run(main)
