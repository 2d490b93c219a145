"""Attestations: a signed statement of what was tested, how, and with which result.

An in-toto Statement (v1) with the test-result predicate, in a DSSE envelope. All that it states follows
from an archive, so that who has the archive and the public key can check every word.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from pinproof import ci, packing, records, replay
from pinproof.case import ORACLE
from pinproof.reasons import Reason, Refusal

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD = "application/vnd.in-toto+json"
PASSPHRASE_VARIABLE = "PINPROOF_KEY_PASSPHRASE"  # nosec B105 - the name of a variable, not its value
# An undecided verdict is no pass: a policy that asks for PASSED refuses it.
RESULTS = {"HOLD": "PASSED", "UNDECIDED": "WARNED", "REVERT": "FAILED"}


def sign(archive: Path, key: Path, target: Path) -> dict[str, Any]:
    """Write the attestation of an archive, signed with a private key (PEM), and return its statement.

    The passphrase of an encrypted key is read from PINPROOF_KEY_PASSPHRASE. Refusals: CASE_INVALID for a
    key that cannot be used, and those of `packing.unpack`.
    """
    made = statement(archive)
    envelope = Envelope(records.canonical(made).encode(), PAYLOAD, {})
    envelope.sign(CryptoSigner(_loaded(key, _private)))
    records.write_text(target, json.dumps(envelope.to_dict(), indent=1, sort_keys=True) + "\n")
    return made


def check(archive: Path, attestation: Path, key: Path) -> str:
    """Check the attestation of an archive by a public key (PEM), and return the key's id.

    Refusals: ATTESTATION_INVALID when it is not signed by that key, or states anything else than the archive
    leads to; CASE_INVALID for a key that cannot be used.
    """
    public = SSlibKey.from_crypto(_loaded(key, load_pem_public_key))
    try:
        envelope = Envelope.from_dict(json.loads(attestation.read_text(encoding="utf-8")))
        envelope.verify([public], threshold=1)
        stated = json.loads(envelope.payload)
    except VerificationError:
        raise _invalid(f"not signed by the key {public.keyid}", attestation) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _invalid(f"no attestation: {error!r:.200}", attestation) from None
    if envelope.payload_type != PAYLOAD:
        raise _invalid(f"its payload is {envelope.payload_type!r:.80}", attestation)
    wanted = statement(archive)
    if stated != wanted:
        said = stated if isinstance(stated, Mapping) else {}
        wrong = ", ".join(sorted(name for name in wanted.keys() | said.keys() if said.get(name) != wanted.get(name)))
        raise _invalid(f"it states something else than this archive leads to: {wrong}", attestation)
    return public.keyid


def statement(archive: Path) -> dict[str, Any]:
    """What an archive leads to; subjects are the archive, its verdict, and the oracle's wheel and version record."""
    files = packing.unpack(archive)
    index = json.loads(files[packing.INDEX])
    home = f"results/{index['case']}/verdict.json"
    verdict = json.loads(files[home])
    engine = f"store/engines/{verdict['arms'][ORACLE]['engine']}"
    wheels = {name: digest for name, digest in index["left_out"].items() if name.startswith(f"{engine}/")}
    tests = ci.tests(verdict)
    return {
        "_type": STATEMENT,
        "subject": [
            _resource(archive.name, records.file_sha256(archive)),
            *(_resource(name, _sha256(files[name])) for name in (home, f"{engine}/version.json")),
            *(_resource(name, digest) for name, digest in sorted(wheels.items())),
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "result": RESULTS[verdict["verdict"]],
            "configuration": [
                _resource(name, _sha256(files[name]))
                for name in sorted(files)
                if name == replay.CASE or name.startswith("inputs/")
            ],
            "passedTests": [test.name for test in tests if not test.against and not test.open],
            "warnedTests": [test.name for test in tests if test.open and not test.against],
            "failedTests": [test.name for test in tests if test.against],
        },
    }


def _loaded(key: Path, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(key.read_bytes())
    except OSError as error:
        raise Refusal(Reason.CASE_INVALID, f"cannot be read: {error.strerror}", file=key, key="key") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Refusal(Reason.CASE_INVALID, f"no key in PEM that can be used: {error}", file=key, key="key") from None


def _private(text: bytes) -> Any:
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    return load_pem_private_key(text, passphrase.encode() if passphrase else None)


def _resource(name: str, sha256: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": sha256}}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _invalid(message: str, file: Path) -> Refusal:
    return Refusal(Reason.ATTESTATION_INVALID, message, file=file)
