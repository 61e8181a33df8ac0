"""DSSE envelopes: a payload and who vouches for it.

https://github.com/secure-systems-lab/dsse, with the payload type of in-toto. The keys
are of Ed25519 or on a NIST curve (ECDSA with SHA-256); a key's id is the SHA-256 of its
public part in DER.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.store.durable import digest_of
from kfuzz.store.plain_file import read_plain

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    Public = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MOST_BYTES: Final = 1 << 20


class RefusedError(Exception):
    """A certificate that does not hold; the message is the reason."""


def encoded(payload: bytes, kind: str = PAYLOAD_TYPE) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding."""
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def envelope(payload: bytes, key: Path) -> dict[str, Any]:
    """Return a payload signed with a private key.

    Args:
        payload: what is signed.
        key: file of the key, in PEM or OpenSSH form, without a passphrase.

    Raises:
        DecodeError: if the file cannot be read.
        UsageError: if it holds no such key, or `cryptography` is not installed.
    """
    _require_library()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    raw = read_plain(key, _MOST_BYTES)
    private: Any = _loaded(
        lambda: serialization.load_pem_private_key(raw, password=None),
        lambda: serialization.load_ssh_private_key(raw, password=None),
    )
    if isinstance(private, ed25519.Ed25519PrivateKey):
        signature = private.sign(encoded(payload))
    elif isinstance(private, ec.EllipticCurvePrivateKey):
        signature = private.sign(encoded(payload), ec.ECDSA(hashes.SHA256()))
    else:
        raise UsageError(
            "is no private key that signs: Ed25519 or on a NIST curve, without a "
            "passphrase",
            where=str(key),
            fix="openssl genpkey -algorithm ed25519 -out key.pem",
        )
    sig = base64.b64encode(signature).decode()
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": keyid(private.public_key()), "sig": sig}],
    }


def public_key(key: Path) -> "Public":
    """Return a public key from a PEM or OpenSSH file, or an X.509 certificate's.

    Raises:
        DecodeError: if the file cannot be read.
        UsageError: if it holds no such key, or `cryptography` is not installed.
        RefusedError: if it is a certificate that is not valid today.
    """
    _require_library()
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    raw = read_plain(key, _MOST_BYTES)
    public: Any = _loaded(
        lambda: serialization.load_pem_public_key(raw),
        lambda: serialization.load_ssh_public_key(raw),
        lambda: x509.load_pem_x509_certificate(raw),
    )
    if isinstance(public, x509.Certificate):
        first, last = public.not_valid_before_utc, public.not_valid_after_utc
        if datetime.now(UTC) > last:
            raise RefusedError(f"the key expired on {last:%Y-%m-%d}")
        if datetime.now(UTC) < first:
            raise RefusedError(f"the key is valid from {first:%Y-%m-%d} on")
        public = public.public_key()
    if isinstance(public, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey):
        return public
    raise UsageError(
        "is no public key of Ed25519 or a NIST curve, and no X.509 certificate of one",
        where=str(key),
        fix="openssl pkey -in key.pem -pubout -out key.pub.pem",
    )


def opened(document: dict[str, Any], key: "Public") -> bytes:
    """Return the payload of an envelope that a key signed.

    Raises:
        DecodeError: if it is no envelope.
        RefusedError: if no signature in it is the key's.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    payload = payload_of(document)
    message = encoded(payload, document["payloadType"])
    for made in document["signatures"]:
        raw = made.get("sig") if isinstance(made, dict) else None
        if not isinstance(raw, str):
            continue
        signature = _decoded(raw, "sig")
        try:
            if isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, message)
            else:
                key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            continue
        return payload
    raise RefusedError(
        f"no signature of the key {keyid(key)[:16]}… fits what the file holds: it was "
        "changed, or another key signed it"
    )


def payload_of(document: dict[str, Any]) -> bytes:
    """Return the payload of an envelope, whoever signed it.

    Raises:
        DecodeError: if it is no envelope of an in-toto statement.
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


def keyid(public: "Public") -> str:
    """Return the id of a key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return digest_of(raw)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"{name} is no base64") from None


def _loaded(*loaders: Callable[[], object]) -> object:
    """Return what the first loader that knows the file makes of it, None if none does.

    What is encrypted raises a TypeError, a form that the library lacks its own error.
    """
    from cryptography.exceptions import UnsupportedAlgorithm

    for load in loaders:
        try:
            return load()
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
    return None


def _require_library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UsageError(
            "signatures take the library cryptography, which is not installed",
            fix="pip install 'kfuzz[certificate]'",
        ) from None
