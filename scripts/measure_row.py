"""series.json: the legs of a row, measured as far as its plan asks for; always written."""

from pinproof import cli, records, series


def main(task: cli.Task) -> None:
    body = series.measure(task.layout, task.id, task.say)
    place = task.layout.row(task.id)
    provenance = {**cli.provenance(), "leases": series.leases(place)}
    records.write(place.series, "series", body, provenance=provenance)


if __name__ == "__main__":
    cli.run(main, needs="row", on_device=True)
