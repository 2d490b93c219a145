"""verdict.md: the verdict as a page that a person reads under stress."""

from pinproof import cli, page, records


def main(task: cli.Task) -> None:
    text = page.of(records.read(task.layout.verdict, "verdict"))
    records.write_text(task.layout.page, text)
    print(text)


if __name__ == "__main__":
    cli.run(main)
