"""figures/: of every row its reps, its noise, its starts, and what the machine did meanwhile."""

from pinproof import cli, figures


def main(task: cli.Task) -> None:
    drawn = list(figures.draw(task.layout))
    task.say(f"{len(drawn)} figures")


if __name__ == "__main__":
    cli.run(main)
