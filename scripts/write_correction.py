"""correction.patch: what every arm's block would have to say, by what its build reports or will report."""

from pinproof import cli, corrections, records


def main(task: cli.Task) -> None:
    text = corrections.of(task.layout)
    records.write_text(task.layout.correction, text)
    task.say(f"wrote {task.layout.correction}")
    print(text)


if __name__ == "__main__":
    cli.run(main)
