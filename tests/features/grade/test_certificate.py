"""Certificates: written, signed, checked, and refused with the reason."""

import base64
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from kfuzz.app import main

KERNELS = """
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops


@kernel(ops.relu)
def right(x):
    return torch.relu(x)
"""
WRONG = KERNELS.replace("torch.relu(x)", "torch.relu(x) * 1.5")


def write_keys(folder: Path, name: str) -> None:
    """Write a private key, its public key, and an X.509 certificate that is over."""
    private = Ed25519PrivateKey.generate()
    made = private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.pem").write_bytes(made)
    public = private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    (folder / f"{name}.pub").write_bytes(public)
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(who, who, private.public_key(), 7)
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
    builder = builder.not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
    certificate = builder.sign(private, None).public_bytes(Encoding.PEM)
    (folder / f"{name}.crt").write_bytes(certificate)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a kernel, keys and a certificate of each kind."""
    folder = tmp_path_factory.mktemp("certified")
    (folder / "pyproject.toml").touch()
    (folder / "kernels.py").write_text(KERNELS)
    here = Path.cwd()
    os.chdir(folder)
    try:
        for name in ("key", "other"):
            write_keys(folder, name)
        graded = ("grade", "kernels.py", "--device", "cpu", "--seed", "1", "-q",
                  "--max-cases", "120", "--json", "graded.json")  # fmt: skip
        assert main([*graded, "--certificate", "signed.json", "--key", "key.pem"]) == 0
        again = ("grade", "--statement", "graded.json", "-q")
        assert main([*again, "--certificate", "statement.json"]) == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def verified(
    capsys: pytest.CaptureFixture[str], file: str, *words: str
) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["certificate", "verify", file, *words])
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


@pytest.mark.slow
def test_it_says_what_was_found_in_the_field_s_own_form(folder: Path) -> None:
    document = json.loads((folder / "signed.json").read_text())
    payload = base64.b64decode(document["payload"])
    said = json.loads(payload)
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"].endswith("/test-result/v0.1")
    assert [s["name"] for s in said["subject"]] == ["kernels.py"]
    predicate = said["predicate"]
    assert predicate["result"] == "PASSED"
    assert "kernels.py::right K-VAL-01" in predicate["passedTests"]
    assert predicate["kfuzz"]["level"] == "KL-1"
    assert "K-VAL-01" in predicate["kfuzz"]["must_pass"]["kernels.py::right"]
    assert predicate["kfuzz"]["not_covered"]
    # Unsigned it says the same.
    assert json.loads((folder / "statement.json").read_text()) == said


def test_one_that_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = verified(capsys, "signed.json", "--key", "key.pub")
    assert code == 0
    assert "signature holds" in text
    assert "kernels.py: " in text
    code, text = verified(capsys, "statement.json")
    assert (code, "this is a statement" in text) == (0, True)


def _payload(change: Callable[[Any], None]) -> Callable[[dict[str, Any]], None]:
    def changes(document: dict[str, Any]) -> None:
        said = json.loads(base64.b64decode(document["payload"]))
        change(said)
        raw = json.dumps(said).encode()
        document["payload"] = base64.b64encode(raw).decode()

    return changes


def _sig(document: dict[str, Any]) -> None:
    raw = bytearray(base64.b64decode(document["signatures"][0]["sig"]))
    raw[7] ^= 1
    document["signatures"][0]["sig"] = base64.b64encode(bytes(raw)).decode()


CHANGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "the level": _payload(lambda s: s["predicate"]["kfuzz"].update(level="KL-4")),
    "the digest": _payload(lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
    "the signature": _sig,
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_byte_is_refused(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((folder / "signed.json").read_text())
    CHANGED[name](document)
    (folder / "changed.json").write_text(json.dumps(document))
    code, text = verified(capsys, "changed.json", "--key", "key.pub")
    assert code == 1
    assert "REFUSED changed.json: no signature of the key" in text


def test_other_keys_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = verified(capsys, "signed.json", "--key", "other.pub")
    assert (code, "another key signed it" in text) == (1, True)
    code, text = verified(capsys, "signed.json", "--key", "key.crt")
    assert (code, "the key is valid 2020-01-01 to 2021-01-01" in text) == (1, True)
    code, text = verified(capsys, "statement.json", "--key", "key.pub")
    assert (code, "it is not signed" in text) == (1, True)
    code, text = verified(capsys, "signed.json", "--key", "kernels.py")
    assert (code, "is no public key" in text) == (2, True)


def test_another_kernel_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").touch()
    signed, key = str(folder / "signed.json"), str(folder / "key.pub")
    code, text = verified(capsys, signed, "--key", key)
    assert (code, "kernels.py is not here" in text) == (1, True)
    Path("kernels.py").write_text(WRONG)
    code, text = verified(capsys, signed, "--key", key, "--sample", "20")
    assert (code, "kernels.py is another file" in text) == (1, True)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"payload": "eyJ', "not JSON"),
        (b"[" * 100_000, ""),
        (b"[]", "is no JSON object"),
        (b'{"payloadType": "x", "payload": "", "signatures": []}', "payload of type"),
        (b'{"_type": "https://in-toto.io/Statement/v1"}', "is no test result"),
    ],
)
def test_what_is_no_certificate_is_said_to_be_none(
    content: bytes, part: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_bytes(content)
    code, text = verified(capsys, "bad.json", "--trust")
    assert code == 2
    assert part in text
    assert "Traceback" not in text


def test_a_sample_runs_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--key", "key.pub", "--sample", "30", "--seed", "4", "--quiet")
    code, text = verified(capsys, "signed.json", *words)
    assert code == 0, text
    assert "kernels.py::right: 30 cases with seed 4" in text
    assert "no violation" in text


@pytest.mark.slow
def test_a_wrong_kernel_fails_and_its_sample_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").touch()
    Path("kernels.py").write_text(WRONG)
    words = ("--device", "cpu", "--seed", "1", "-q", "--max-cases", "30")
    assert main(["grade", "kernels.py", *words, "--certificate", "c.json"]) == 1
    said = json.loads(Path("c.json").read_text())
    assert said["predicate"]["result"] == "FAILED"
    assert "kernels.py::right K-VAL-01" in said["predicate"]["failedTests"]
    code, text = verified(capsys, "c.json", "--sample", "20", "--quiet")
    assert (code, "REFUSED kernels.py::right: K-VAL-01" in text) == (1, True)


def test_a_kernel_of_a_module_runs_for_a_key_or_by_trust_whatever_the_subject(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads((folder / "statement.json").read_text())
    [kernel] = said["predicate"]["kfuzz"]["statement"]["kernels"]
    kernel["kernel"] = "somewhere.kernels:right"
    (folder / "module.json").write_text(json.dumps(said))
    code, text = verified(capsys, "module.json", "--sample", "5")
    assert (code, "no key vouches for it" in text) == (2, True)
