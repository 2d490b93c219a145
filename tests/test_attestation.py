"""Attestations: what is stated follows from the archive, and is signed by the key that is given."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.builders import refusal_of
from tests.test_archive import archived

from pinproof import attestation, packing, records
from pinproof.reasons import Reason

KEYS: dict[str, Callable[[], Any]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


def keys(folder: Path, kind: str = "ed25519", passphrase: str | None = None) -> tuple[Path, Path]:
    """A private key and its public half, as files in PEM."""
    made = KEYS[kind]()
    closed = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    pem, folder = serialization.Encoding.PEM, folder / f"{kind}-{passphrase}"
    folder.mkdir()
    (folder / "key").write_bytes(made.private_bytes(pem, serialization.PrivateFormat.PKCS8, closed))
    (folder / "key.pub").write_bytes(
        made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return folder / "key", folder / "key.pub"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archived(tmp_path_factory.mktemp("small"))[1]


@pytest.fixture
def signed(archive: Path, tmp_path: Path) -> tuple[Path, Path]:
    """An attestation, and the public key."""
    private, public = keys(tmp_path)
    attestation.sign(archive, private, tmp_path / "attestation.json")
    return tmp_path / "attestation.json", public


def test_it_states_what_was_tested_how_and_with_which_result(archive: Path) -> None:
    made = attestation.statement(archive)
    files = packing.unpack(archive)
    engine = json.loads(files["results/small/verdict.json"])["arms"]["oracle"]["engine"]
    assert (made["_type"], made["predicateType"]) == (attestation.STATEMENT, attestation.PREDICATE)
    names = {one["name"]: one["digest"]["sha256"] for one in made["subject"]}
    assert names.pop("verdict.tar.zst") == records.file_sha256(archive)
    (wheel,) = [name for name in names if name.endswith(".whl")]
    assert names.keys() == {"results/small/verdict.json", f"store/engines/{engine}/version.json", wheel}
    assert wheel.startswith(f"store/engines/{engine}/wheel/")
    predicate = made["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == ["identity of oracle", "identity of previous", "serving"]
    assert (predicate["warnedTests"], predicate["failedTests"]) == ([], [])
    assert {"case.yaml", "inputs/locks/oracle.txt"} < {one["name"] for one in predicate["configuration"]}


def test_only_a_hold_is_passed() -> None:
    assert attestation.RESULTS == {"HOLD": "PASSED", "UNDECIDED": "WARNED", "REVERT": "FAILED"}


def test_the_envelope_is_one_of_in_toto_s(signed: tuple[Path, Path], archive: Path) -> None:
    envelope = json.loads(signed[0].read_text())
    assert envelope.keys() == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert json.loads(base64.b64decode(envelope["payload"])) == attestation.statement(archive)


@pytest.mark.parametrize("kind", KEYS)
def test_a_signature_of_every_kind_of_key_is_checked(archive: Path, tmp_path: Path, kind: str) -> None:
    private, public = keys(tmp_path, kind)
    attestation.sign(archive, private, tmp_path / "a")
    assert attestation.check(archive, tmp_path / "a", public)


def test_an_encrypted_key_is_opened_by_the_environment(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys(tmp_path, passphrase="battery")
    refusal = refusal_of(attestation.sign, archive, private, tmp_path / "a")
    assert (refusal.reason, refusal.key) == (Reason.CASE_INVALID, "key")
    monkeypatch.setenv(attestation.PASSPHRASE_VARIABLE, "battery")
    attestation.sign(archive, private, tmp_path / "a")
    assert attestation.check(archive, tmp_path / "a", public)


def test_another_s_signature_is_refused(signed: tuple[Path, Path], archive: Path, tmp_path: Path) -> None:
    _, other = keys(tmp_path, "ecdsa")
    refusal = refusal_of(attestation.check, archive, signed[0], other)
    assert (refusal.reason, "not signed by the key" in refusal.message) == (Reason.ATTESTATION_INVALID, True)


def test_a_changed_statement_is_refused(signed: tuple[Path, Path], archive: Path) -> None:
    envelope = json.loads(signed[0].read_text())
    payload = base64.b64decode(envelope["payload"]).replace(b"PASSED", b"FAILED")
    signed[0].write_text(json.dumps({**envelope, "payload": base64.b64encode(payload).decode()}))
    assert "not signed" in refusal_of(attestation.check, archive, *signed).message


def test_a_statement_about_another_archive_is_refused(signed: tuple[Path, Path], archive: Path, tmp_path: Path) -> None:
    files = packing.unpack(archive)
    other = tmp_path / archive.name
    other.write_bytes(packing.pack({**files, "more": b""}))
    assert "something else than this archive leads to: subject" in refusal_of(attestation.check, other, *signed).message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"payload": "", "payloadType": "x", "signatures": [{}]}'])
def test_what_is_no_attestation_is_refused(signed: tuple[Path, Path], archive: Path, text: str) -> None:
    signed[0].write_text(text)
    assert refusal_of(attestation.check, archive, *signed).reason is Reason.ATTESTATION_INVALID


def test_a_signed_text_of_another_type_is_refused(archive: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path)
    envelope = attestation.Envelope(b"{}", "text/plain", {})
    envelope.sign(attestation.CryptoSigner(serialization.load_pem_private_key(private.read_bytes(), None)))
    (tmp_path / "a").write_text(json.dumps(envelope.to_dict()))
    assert "its payload is 'text/plain'" in refusal_of(attestation.check, archive, tmp_path / "a", public).message


def test_a_key_that_cannot_be_used_is_named(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    for key in (tmp_path / "key", tmp_path / "none"):
        refusal = refusal_of(attestation.sign, archive, key, tmp_path / "a")
        assert (refusal.reason, refusal.file) == (Reason.CASE_INVALID, str(key))
