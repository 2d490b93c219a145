"""Records: JSON files that are facts.

A record carries a `schema` (name and version), has sorted keys and no NaN, and is written to a
temporary name, flushed and renamed, so that a file under its final name is always whole. What
varies without meaning (times, host names, paths, run ids) sits under `provenance` and is left out
of the content digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pinproof.reasons import Reason, Refusal

PROVENANCE = "provenance"
# Set for every process of a rehearsal: its records are of another family, which nothing else reads.
REHEARSAL_VARIABLE = "PINPROOF_REHEARSAL"


def rehearsing() -> bool:
    """Whether this process belongs to a rehearsal."""
    return bool(os.environ.get(REHEARSAL_VARIABLE))


def schema_name(schema: str, rehearsed: bool | None = None) -> str:
    """The full name of a schema: a record of a rehearsal is never one of a measurement, nor the other way.

    `rehearsed` says which of the two is meant; None: as this process is.
    """
    family = "pinproof-rehearsal" if (rehearsing() if rehearsed is None else rehearsed) else "pinproof"
    return f"{family}/{schema}"


def canonical(value: Any) -> str:
    """JSON with sorted keys and no white space; ValueError on NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 (64 hex digits) of a JSON value's canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 (64 hex digits) of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_digest(record: Mapping[str, Any]) -> str:
    """Digest of what a record says, provenance left out."""
    return digest({key: value for key, value in record.items() if key != PROVENANCE})


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def written() -> str:
    """The time now (UTC, seconds), as a provenance says it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def headed(schema: str, body: Mapping[str, Any], *, version: int = 1) -> dict[str, Any]:
    """A record without provenance: what is digested of it.

    `schema` is the record's name, such as "gate"; ValueError when `body` holds the keys `schema`
    or `provenance`.
    """
    if clash := {"schema", PROVENANCE} & set(body):
        raise ValueError(f"record body holds reserved keys: {sorted(clash)}")
    return {"schema": {"name": schema_name(schema), "version": version}, **body}


def text(schema: str, body: Mapping[str, Any], *, version: int = 1, provenance: Mapping[str, Any] | None = None) -> str:
    """A record as it stands in its file; arguments and errors are those of `write`."""
    record = headed(schema, body, version=version)
    if provenance is not None:
        record[PROVENANCE] = dict(provenance)
    return json.dumps(record, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write(
    path: Path, schema: str, body: Mapping[str, Any], *, version: int = 1, provenance: Mapping[str, Any] | None = None
) -> dict:
    """Write one record whole or not at all, and return it as it will be read.

    `schema` and `body` are those of `headed`. Raises ValueError on NaN or infinity: unknown is null.
    """
    written = text(schema, body, version=version, provenance=provenance)
    write_text(path, written)
    return json.loads(written)


def read(path: Path, schema: str, *, version: int = 1, rehearsed: bool | None = None) -> dict:
    """Read one record and check that it is whole and of the expected schema; `rehearsed` as in `schema_name`.

    Refusals: RECORD_MISSING, RECORD_DAMAGED (not JSON, NaN, not an object), RECORD_FOREIGN
    (another schema or version).
    """
    try:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except FileNotFoundError:
        raise Refusal(Reason.RECORD_MISSING, f"no {schema} record", file=path) from None
    except OSError as error:
        raise Refusal(Reason.RECORD_DAMAGED, f"cannot be read: {error.strerror}", file=path) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(Reason.RECORD_DAMAGED, f"not a whole JSON record: {error}", file=path) from None
    if not isinstance(record, dict):
        raise Refusal(Reason.RECORD_DAMAGED, "not a JSON object", file=path)
    expected = {"name": schema_name(schema, rehearsed), "version": version}
    if record.get("schema") != expected:
        raise Refusal(Reason.RECORD_FOREIGN, f"schema is {record.get('schema')}, expected {expected}", file=path)
    return record


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_constant(digits)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
