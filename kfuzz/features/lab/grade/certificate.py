"""kfuzz certificate verify: whether a certificate holds here."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import CorpusOption, DeviceOption, QuietOption, option, shared
from kfuzz.cli.streams import ExitCode, follow, report_stream, stopping
from kfuzz.core.budget import Budget
from kfuzz.core.codec import decode
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.finding import host_fingerprint
from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.features.lab.grade.statement import KernelStatement, Statement
from kfuzz.features.lab.grade.statement_text import (
    LEVELS,
    is_judged,
    standing_of,
    statement_document,
)
from kfuzz.store import files as strict_json
from kfuzz.store.files import digest_of, read_plain

# DSSE envelopes: a payload and who vouches for it.
#
# https://github.com/secure-systems-lab/dsse, with the payload type of in-toto. The keys
# are of Ed25519 or on a NIST curve (ECDSA with SHA-256); a key's id is the SHA-256 of
# its public part in DER.

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    Public = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_SIGNING_MOST_BYTES: Final = 1 << 20


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

    raw = read_plain(key, _SIGNING_MOST_BYTES)
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

    raw = read_plain(key, _SIGNING_MOST_BYTES)
    public: Any = _loaded(
        lambda: serialization.load_pem_public_key(raw),
        lambda: serialization.load_ssh_public_key(raw),
        lambda: x509.load_pem_x509_certificate(raw),
    )
    if isinstance(public, x509.Certificate):
        first, last = public.not_valid_before_utc, public.not_valid_after_utc
        if not first <= datetime.now(UTC) <= last:
            raise RefusedError(f"the key is valid {first:%Y-%m-%d} to {last:%Y-%m-%d}")
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
    curve = () if isinstance(key, ed25519.Ed25519PublicKey) else (
        ec.ECDSA(hashes.SHA256()),
    )  # fmt: skip
    for made in document["signatures"]:
        raw = made.get("sig") if isinstance(made, dict) else None
        with suppress(InvalidSignature):
            key.verify(_decoded(str(raw), "sig"), message, *curve)
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
    kind, payload = document.get("payloadType"), document.get("payload")
    if kind != PAYLOAD_TYPE:
        raise DecodeError(f"payload of type {kind!r:.60}, expected {PAYLOAD_TYPE}")
    if not isinstance(payload, str) or not isinstance(document.get("signatures"), list):
        raise DecodeError("the envelope holds no payload or no signature")
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


certificate_app: Final = typer.Typer(
    name="certificate", help="Check conformance certificates.", no_args_is_help=True
)
# A certificate of a platform's kernels has some hundred kilobytes.
_MOST_BYTES: Final = 16 << 20
_FIX: Final = "`kfuzz grade --certificate FILE` writes one"


@certificate_app.callback()
def certificates() -> None:
    """Check conformance certificates."""


@certificate_app.command()
def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `kfuzz grade` wrote.")
    ],
    key: Annotated[
        Path | None,
        option(
            "--key",
            "Public key that must have signed it: PEM, OpenSSH, or an X.509 "
            "certificate, which must be valid today.",
            metavar="FILE",
        ),
    ] = None,
    sample: Annotated[
        int,
        option(
            "--sample",
            "Run so many cases of each kernel again, drawn with --seed.",
            metavar="N",
        ),
    ] = 0,
    seed: Annotated[
        int | None, shared("seed", "Default: a fresh one, printed.", "N")
    ] = None,
    trust: Annotated[
        bool,
        option(
            "--trust",
            "Run again though no key vouches for it, and kernels of modules outside "
            "the project too.",
        ),
    ] = False,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    quiet: QuietOption = False,
) -> int:
    """Check a certificate: signature, files, and a sample of its cases.

    The files that it names are looked for in the project, and their digests compared.

    Exit codes: 0 it holds, 1 it is rejected or a sample finds a violation, 2 usage or
    unreadable, 3 internal error, 4 no value of a sample was compared, 5 device
    missing, 130 interrupted.
    """
    if sample < 0:
        raise UsageError(f"{sample} is not at least 0", where="--sample")
    document = _parsed(read_plain(file, _MOST_BYTES, fix=_FIX), file)
    project = open_project(corpus)
    with report_stream() as out:
        try:
            payload, signed = _signed(document, key)
            digests, statement = attested(_parsed(payload, file))
            lines = [signed, *_files(digests, project.root)]
        except RefusedError as error:
            out.write(f"REFUSED {file}: {error}\n")
            return ExitCode.VIOLATION
        except DecodeError as error:
            place = f"{file}: {error.where}" if error.where else str(file)
            raise DecodeError(error.what, where=place, fix=error.fix) from None
        lines += _stated(statement)
        out.write("\n".join(lines) + "\n")
        if not sample:
            out.write("sample    none: `--sample 200` runs cases again\n")
            return ExitCode.OK
        if (
            key is None
            and not trust
            and any(is_of_a_module(k.kernel) for k in statement.kernels)
        ):
            raise UsageError(
                "names modules outside the project, and no key vouches for it",
                where=str(file),
                fix="give --key, or --trust to import them",
            )
        seed = settings.drawn_seed(seed)
        return _sampled(statement, project, sample, seed, device, quiet, out.write)


def _parsed(text: bytes, file: Path) -> dict[str, Any]:
    return _object(strict_json.loads(text, where=str(file)), str(file))


def _signed(document: dict[str, Any], key: Path | None) -> tuple[bytes, str]:
    """Return the in-toto statement of a file, and what is known of who signed it."""
    enveloped = "payloadType" in document or "signatures" in document
    if key is None:
        if enveloped:
            return payload_of(document), "signature not checked: no --key given"
        return canonical(document), "signature none: this is a statement, nobody signed"
    if not enveloped:
        raise RefusedError("it is not signed: a statement, no certificate")
    public = public_key(key)
    known_as = keyid(public)
    return opened(document, public), f"signature holds, key {known_as[:16]}…"


def _files(digests: Mapping[str, str], root: Path) -> list[str]:
    """Return a line for each file.

    Raises:
        RefusedError: if one is missing or another one.
    """
    lines = []
    for name, expected in digests.items():
        path = place_of(name, root)
        if path is None:
            raise RefusedError(f"{name} is not here")
        found = digest(path)
        if found != expected:
            raise RefusedError(
                f"{name} is another file: its SHA-256 is {found[:16]}…, certified is "
                f"{expected[:16]}…"
            )
        lines.append(f"file      {name}: {expected[:16]}… as certified")
    return lines


def _stated(statement: Statement) -> list[str]:
    result = result_of(statement)
    lines = [f"result    {result} on {statement.place}, seed {statement.seed}"]
    for kernel in statement.kernels:
        standing = standing_of(statement, kernel)
        thin = f", {kernel.tried.evidence} evidence" if kernel.tried else ""
        lines.append(
            f"kernel    {kernel.kernel}: {kernel.operator}, {standing.name}, "
            f"{kernel.cases} cases{thin}"
        )
    here, there = host_fingerprint(), statement.fingerprint
    if other := here.differences(there):
        lines.append(f"versions  {'; '.join(other)}")
    return lines


def _sampled(
    said: Statement, project: Project, cases: int, seed: int, device: str, quiet: bool,
    write: Callable[[str], object],
) -> int:  # fmt: skip
    """Run a sample, print what came of it, and return the exit code."""
    from kfuzz.features.lab.grade.grading import Grading
    from kfuzz.features.lab.grade.verb import code_of

    config = RunConfig(
        targets=tuple(k.kernel for k in said.kernels),
        root=project.root,
        corpus=project.corpus,
        seed=seed,
        budget=Budget(max_time=None, max_cases=cases),
        device=said.device if device == "auto" else device,
    )
    grading = Grading(config)
    with stopping() as stop:
        events = grading.events(stop=stop)
        follow(events, stop, quiet=quiet, corpus=project.corpus_option)
    made = grading.statement()
    certified = {kernel.kernel: kernel for kernel in said.kernels}
    for kernel in made.kernels:
        if kernel.source != certified[kernel.kernel].source:
            write(f"REFUSED {kernel.kernel}: its code is another than certified\n")
            return ExitCode.VIOLATION
        broken = [f for f in kernel.findings if f.state in ATTRIBUTED]
        decided = sum(graded.decided for graded in kernel.contracts.values())
        write(
            f"sample    {kernel.kernel}: {kernel.cases} cases with seed {seed}, "
            f"{decided} verdicts, {len(broken) or 'no'} violation{'s'[: len(broken)]}\n"
        )
        for fault in broken:
            write(f"REFUSED {kernel.kernel}: {fault.contract}: {fault.message}\n")
    return code_of(made, fail_on_known=True)


# A conformance statement as an in-toto statement about files.
#
# One statement with the predicate "test result", and kfuzz's detail as a field of that:
# what reads test results ignores fields that it does not know, and one signature covers
# both.

STATEMENT: Final = "https://in-toto.io/Statement/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
FORMAT: Final = 1
# A wheel with compiled kernels for many GPUs.
_ATTESTATION_MOST_BYTES: Final = 1 << 30


def attestation(
    statement: Statement, *, root: Path, subjects: Sequence[Path] = ()
) -> dict[str, Any]:
    """Return the in-toto statement about a conformance statement.

    Args:
        statement: what `kfuzz grade` found.
        root: the project, to which names of files are relative.
        subjects: files that it is about; by default those that bind the kernels.

    Raises:
        UsageError: if it is about no file, or no value of a kernel was compared.
    """
    for kernel in statement.kernels:
        if not is_judged(kernel):
            raise UsageError(
                "no value of it was compared: it gets no certificate",
                where=kernel.kernel,
                fix="grade with more cases, or leave it out",
            )
    files = {_name(path, root): path for path in subjects} or _attestation_files(
        statement, root
    )
    if not files:
        raise UsageError("no kernel was graded: there is nothing to certify")
    listed: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for kernel in statement.kernels:
        for name, graded in kernel.contracts.items():
            listed[graded.verdict].append(f"{kernel.kernel} {name}")
    must = {k.kernel: must_pass(statement, k) for k in statement.kernels}
    detail = {"must_pass": must, "not_covered": not_covered(statement)}
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest(path)}}
            for name, path in sorted(files.items())
        ],
        "predicateType": TEST_RESULT,
        "predicate": {
            "result": result_of(statement),
            "configuration": [],
            "passedTests": listed[Verdict.CONFORMS],
            "warnedTests": listed[Verdict.UNDER_SPECIFIED] + listed[Verdict.ERROR],
            "failedTests": listed[Verdict.VIOLATES],
            "kfuzz": {"format": FORMAT, **detail, **statement_document(statement)},
        },
    }


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys and without spaces; equal for equal documents."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False,
        allow_nan=False,
    )  # fmt: skip
    return text.encode()


def attested(document: dict[str, Any]) -> tuple[dict[str, str], Statement]:
    """Return the files' SHA-256 by name, and the conformance statement.

    Raises:
        DecodeError: if it is none, or is malformed; names the field.
    """
    kinds = [document.get(n) for n in ("_type", "predicateType")]
    if kinds != [STATEMENT, TEST_RESULT]:
        raise DecodeError(f"{kinds[0]!r:.60} of {kinds[1]!r:.80} is no test result")
    predicate = _object(document.get("predicate"), "predicate")
    detail = _object(predicate.get("kfuzz"), "predicate.kfuzz")
    if detail.get("format") != FORMAT:
        raise DecodeError(
            f"format {detail.get('format')!r:.20} is not known",
            where="predicate.kfuzz",
            fix=f"this kfuzz reads format {FORMAT}",
        )
    try:
        digests = {e["name"]: e["digest"]["sha256"] for e in document["subject"]}
    except (KeyError, TypeError):
        raise DecodeError("one has no name with a SHA-256", where="subject") from None
    if not digests or not all(isinstance(x, str) for i in digests.items() for x in i):
        raise DecodeError("it is about no file", where="subject")
    statement = decode(Statement, detail.get("statement"), "predicate.kfuzz.statement")
    result = predicate.get("result")
    if result != result_of(statement):
        raise DecodeError(
            f"result {result!r:.20} does not follow from what was found",
            where="predicate.result",
        )
    return digests, statement


def result_of(statement: Statement) -> str:
    """Return in-toto's word for a statement: PASSED, WARNED or FAILED.

    Passed are kernels that reach a level and violate nothing, on evidence enough.
    """
    weak = statement.interrupted or not statement.kernels
    for kernel in statement.kernels:
        verdicts = {graded.verdict for graded in kernel.contracts.values()}
        confirmed = any(fault.state in ATTRIBUTED for fault in kernel.findings)
        if confirmed or Verdict.VIOLATES in verdicts:
            return "FAILED"
        thin = kernel.tried is not None and kernel.tried.evidence == "thin"
        weak = weak or thin or standing_of(statement, kernel).level == 0
    return "WARNED" if weak else "PASSED"


def must_pass(statement: Statement, kernel: KernelStatement) -> list[str]:
    """Return the contracts that the next level of a kernel demands, or its own."""
    reached = standing_of(statement, kernel).level
    wanted = [n for level in LEVELS[: max(reached, 1)] for n in level.classes]
    return [name for name in wanted if name in kernel.contracts]


def not_covered(statement: Statement) -> list[str]:
    """Return what the statement does not speak of, one line each."""
    lines = ["other devices, and other versions of the driver, torch and triton"]
    for kernel in statement.kernels:
        for name, graded in kernel.contracts.items():
            if not graded.decided and graded.verdict is not Verdict.VIOLATES:
                lines.append(f"{kernel.kernel}: {name} was decided by no case")
        for refusal in kernel.refusals:
            lines.append(f"{kernel.kernel}: rejected by the kernel: {refusal.reason}")
    return lines + list(statement.notices)


def is_of_a_module(target: str) -> bool:
    """Whether a kernel is a module's, wherever that is installed, and no file's."""
    return "::" not in target


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        DecodeError: if it cannot be read.
    """
    return digest_of(read_plain(path, _ATTESTATION_MOST_BYTES))


def place_of(name: str, root: Path) -> Path | None:
    """Return the file of a subject, None where there is none.

    It is one of the project, or the file of a module that can be found by its name.
    """
    try:
        if name.startswith("module:"):
            return _module_file(name.removeprefix("module:"))
        path = (root / name).resolve()
        inside = path.is_relative_to(root.resolve())
        return path if inside and path.is_file() else None
    except (OSError, ValueError, ImportError):  # no name that a file can have
        return None


def _attestation_files(statement: Statement, root: Path) -> dict[str, Path]:
    """Return the files that bind the kernels, by the name of each."""
    found = {}
    for kernel in statement.kernels:
        name = kernel.kernel.partition("::")[0]
        if is_of_a_module(kernel.kernel):
            name = f"module:{kernel.kernel.partition(':')[0]}"
        path = place_of(name, root)
        if path is None:
            raise UsageError(
                "its file is not within the project",
                where=kernel.kernel,
                fix="name what the certificate is about: --subject FILE",
            )
        found[name] = path
    return found


def _module_file(module: str) -> Path | None:
    """Return the file of a module; nothing is imported, its packages neither."""
    parts = module.split(".")
    places: list[str] | None = None
    origin: str | None = None
    for number in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:number]), places)
        if spec is None:
            return None
        places, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin else None


def _name(path: Path, root: Path) -> str:
    whole = path.resolve()
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(
            "a subject lies within the project", where=str(path), fix="copy it there"
        )
    return str(whole.relative_to(root.resolve()))


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError("is no JSON object", where=where)
    return value
