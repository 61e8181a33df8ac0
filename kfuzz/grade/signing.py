"""DSSE envelopes: a payload and who vouches for it.

https://github.com/secure-systems-lab/dsse: the signature is over the type and the bytes
of the payload, so that nothing of it has to be canonical to be checked.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.store.durable import digest_of
from kfuzz.store.plain_file import read_plain

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MOST_BYTES: Final = 1 << 20
_EXTRA: Final = "pip install 'kfuzz[certificate]'"


class RefusedError(Exception):
    """A certificate that does not hold; the message is the reason."""


@dataclass(frozen=True)
class Verifier:
    """A public key.

    Attributes:
        keyid: SHA-256 of the key's SubjectPublicKeyInfo, in hexadecimal.
        holds: whether a signature is that of a message.
        expired: why the key is not valid now, "" if it is.
    """

    keyid: str
    holds: Callable[[bytes, bytes], bool]
    expired: str = ""


def encoded(payload: bytes, kind: str = PAYLOAD_TYPE) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding."""
    name = kind.encode()
    return b" ".join(
        (b"DSSEv1", str(len(name)).encode(), name, str(len(payload)).encode(), payload)
    )


def envelope(payload: bytes, key: Path) -> dict[str, Any]:
    """Return a payload signed with a private key.

    Args:
        payload: what is vouched for.
        key: PEM or OpenSSH file of an Ed25519 key or one on a NIST curve, without a
            passphrase.

    Raises:
        UsageError: if it is no such key, or the extra is missing.
        DecodeError: if it cannot be read.
    """
    crypto = _library()
    raw = read_plain(key, _MOST_BYTES)
    private: Any = None
    for load in (
        crypto.serialization.load_pem_private_key,
        crypto.serialization.load_ssh_private_key,
    ):
        try:
            private = load(raw, password=None)
            break
        except (ValueError, TypeError, crypto.unsupported):
            continue
    if isinstance(private, crypto.ed25519.Ed25519PrivateKey):
        signature = private.sign(encoded(payload))
    elif isinstance(private, crypto.ec.EllipticCurvePrivateKey):
        signature = private.sign(encoded(payload), crypto.ec.ECDSA(crypto.sha256()))
    else:
        raise UsageError(
            "is no private key that signs: Ed25519 or on a NIST curve, without a "
            "passphrase",
            where=str(key),
            fix="openssl genpkey -algorithm ed25519 -out key.pem",
        )
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {
                "keyid": _keyid(crypto, private.public_key()),
                "sig": base64.b64encode(signature).decode(),
            }
        ],
    }


def verifier(key: Path) -> Verifier:
    """Return a public key from a PEM or OpenSSH file, or an X.509 certificate's.

    Raises:
        UsageError: if it is none, or the extra is missing.
        DecodeError: if it cannot be read.
    """
    crypto = _library()
    raw = read_plain(key, _MOST_BYTES)
    public, expired = _public(crypto, raw, key)
    if isinstance(public, crypto.ed25519.Ed25519PublicKey):

        def check(signature: bytes, message: bytes) -> None:
            public.verify(signature, message)

    elif isinstance(public, crypto.ec.EllipticCurvePublicKey):

        def check(signature: bytes, message: bytes) -> None:
            public.verify(signature, message, crypto.ec.ECDSA(crypto.sha256()))

    else:
        raise UsageError(
            "is no public key of Ed25519 or a NIST curve, and no X.509 certificate of "
            "one",
            where=str(key),
            fix="openssl pkey -in key.pem -pubout -out key.pub.pem",
        )

    def holds(signature: bytes, message: bytes) -> bool:
        try:
            check(signature, message)
        except crypto.invalid:
            return False
        return True

    return Verifier(_keyid(crypto, public), holds, expired)


def opened(document: dict[str, Any], key: Verifier) -> bytes:
    """Return the payload of an envelope that a key signed.

    Raises:
        RefusedError: if the key is not valid, or no signature is its own.
        DecodeError: if the envelope is malformed.
    """
    payload = payload_of(document)
    signatures = document["signatures"]
    if key.expired:
        raise RefusedError(key.expired)
    message = encoded(payload, document["payloadType"])
    for made in signatures:
        raw = made.get("sig") if isinstance(made, dict) else None
        if isinstance(raw, str) and key.holds(_decoded(raw, "sig"), message):
            return payload
    raise RefusedError(
        f"no signature of the key {key.keyid[:16]}… fits what the file holds: it was "
        "changed, or another key signed it"
    )


def payload_of(document: dict[str, Any]) -> bytes:
    """Return the payload of an envelope, whoever signed it.

    Raises:
        DecodeError: if the envelope is malformed.
    """
    kind, signatures = document.get("payloadType"), document.get("signatures")
    if kind != PAYLOAD_TYPE:
        raise DecodeError(f"payload of type {kind!r:.60}, expected {PAYLOAD_TYPE}")
    if not isinstance(signatures, list) or not signatures:
        raise DecodeError("the envelope holds no signature")
    payload = document.get("payload")
    if not isinstance(payload, str):
        raise DecodeError("the envelope holds no payload")
    return _decoded(payload, "payload")


def _public(crypto: "_Library", raw: bytes, key: Path) -> tuple[Any, str]:
    """Return a public key, and why it is not valid now."""
    if b"BEGIN CERTIFICATE" in raw:
        try:
            made = crypto.x509.load_pem_x509_certificate(raw)
        except ValueError as error:
            raise UsageError(f"no X.509 certificate: {error}", where=str(key)) from None
        now = datetime.now(UTC)
        first, last = made.not_valid_before_utc, made.not_valid_after_utc
        expired = ""
        if now > last:
            expired = f"the key expired on {last:%Y-%m-%d}"
        elif now < first:
            expired = f"the key is valid from {first:%Y-%m-%d} on"
        return made.public_key(), expired
    for load in (
        crypto.serialization.load_pem_public_key,
        crypto.serialization.load_ssh_public_key,
    ):
        try:
            return load(raw), ""
        except (ValueError, TypeError, crypto.unsupported):
            continue
    return None, ""


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"{name} is no base64") from None


def _keyid(crypto: "_Library", public: Any) -> str:
    raw = public.public_bytes(
        crypto.serialization.Encoding.DER,
        crypto.serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    return digest_of(raw)


@dataclass(frozen=True)
class _Library:
    """The parts of `cryptography` that are used."""

    x509: Any
    serialization: Any
    ed25519: Any
    ec: Any
    sha256: Any
    invalid: type[Exception]
    unsupported: type[Exception]


def _library() -> _Library:
    try:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    except ImportError:
        raise UsageError(
            "signatures take the library cryptography, which is not installed",
            fix=_EXTRA,
        ) from None
    return _Library(
        x509, serialization, ed25519, ec, hashes.SHA256, InvalidSignature,
        UnsupportedAlgorithm,
    )  # fmt: skip
