"""The RO-Crate of an archive: what ran, with what, and what came of it, for other tools to read.

https://w3id.org/ro/crate, in the shape of a Process Run Crate: an action for the verdict and one a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

from pinproof.packing import INDEX, SEAL

FILE = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_FORMATS = {"json": "application/json", "jsonl": "application/jsonl", "md": "text/markdown", "yaml": "application/yaml"}


def of(verdict: Mapping[str, Any], verdict_file: str, files: Mapping[str, Mapping[str, Any]], inputs: list[str]) -> str:
    """The crate's metadata as text; `files` are size and sha256 of every file by name, `inputs` some of them.

    It follows from these alone: its date is that of the verdict.
    """
    crate = ROCrate()
    when = (verdict.get("provenance") or {}).get("written")
    root = crate.root_dataset
    root["name"] = f"Verdict of the case {verdict['case']}: {verdict['verdict']}"
    root["description"] = " ".join(verdict["question"].split())
    root["datePublished"] = when or "1970-01-01"
    root["conformsTo"] = crate.add(
        ContextEntity(crate, PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate"})
    )
    entities = {name: _file(crate, name, one) for name, one in sorted(files.items())}
    for name in (INDEX, SEAL):
        _file(crate, name, {})
    pinproof = crate.add(ContextEntity(crate, "#pinproof", {"@type": "SoftwareApplication", "name": "pinproof"}))
    engines = {arm: crate.add(ContextEntity(crate, f"#engine-{arm}", _engine(arm, one)))
               for arm, one in sorted(verdict["arms"].items())}  # fmt: skip
    actions = [
        _action(crate, "#verdict", "Verdict", pinproof, [entities[name] for name in inputs], [entities[verdict_file]])
    ]
    for row in sorted(verdict["rows"]):
        result = entities[f"{verdict_file.removesuffix('/verdict.json')}/rows/{row}.json"]
        actions.append(_action(crate, f"#row-{row}", f"Row {row}", list(engines.values()), [], [result]))
    for action in actions:
        if when:
            action["endTime"] = when
    root["mentions"] = actions
    return json.dumps(crate.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _file(crate: ROCrate, name: str, one: Mapping[str, Any]) -> Any:
    properties = {"encodingFormat": _FORMATS.get(name.rpartition(".")[2], "text/plain")}
    if one:
        properties |= {"contentSize": str(one["bytes"]), "sha256": one["sha256"]}
    return crate.add_file(dest_path=name, properties=properties)


def _engine(arm: str, one: Mapping[str, Any]) -> dict[str, Any]:
    version = one["environment"].get("vllm_runtime_version")
    found = {"@type": "SoftwareApplication", "name": f"the engine of arm {arm}", "identifier": one["engine"]}
    return found | ({"softwareVersion": version} if version else {})


def _action(crate: ROCrate, name: str, words: str, instrument: Any, what: list[Any], result: list[Any]) -> Any:
    action = crate.add(ContextEntity(crate, name, {"@type": "CreateAction", "name": words}))
    action["instrument"] = instrument
    if what:
        action["object"] = what
    action["result"] = result
    return action
