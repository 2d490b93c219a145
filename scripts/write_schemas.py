"""config/schemas/: the published JSON Schemas, made from the models that a case and the documents are checked by."""

import functools
import json
from pathlib import Path

from pinproof import case, documents, records

FOLDER = Path(__file__).resolve().parents[1] / "config" / "schemas"
SCHEMAS = {"case": case.json_schema} | {
    name: functools.partial(documents.json_schema, name) for name in documents.MODELS
}


def write(folder: Path) -> None:
    for name, make in SCHEMAS.items():
        records.write_text(folder / f"{name}.schema.json", json.dumps(make(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(FOLDER)
