"""kfuzz certificate verify: whether a certificate holds here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kfuzz.cli import values
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import CorpusOption, DeviceOption, QuietOption, option, shared
from kfuzz.cli.standard_streams import follow, report_stream, stopping
from kfuzz.core.budget import Budget
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.statement import Statement
from kfuzz.core.verdict import CHARGED
from kfuzz.engine.config import RunConfig
from kfuzz.grade import signing
from kfuzz.store import strict_json
from kfuzz.store.plain_file import read_plain

if TYPE_CHECKING:
    from kfuzz.grade.attestation import Attested

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
    from kfuzz.grade.attestation import attested, is_of_a_module

    if sample < 0:
        raise UsageError(f"{sample} is not at least 0", where="--sample")
    document = _read(file)
    project = open_project(corpus)
    with report_stream() as out:
        try:
            payload, signed = _signed(document, key, file)
            said = attested(_parsed(payload, file))
            lines = [signed, *_files(said.digests, project.root)]
        except signing.RefusedError as error:
            out.write(f"REFUSED {file}: {error}\n")
            return ExitCode.VIOLATION
        except DecodeError as error:
            place = f"{file}: {error.where}" if error.where else str(file)
            raise DecodeError(error.what, where=place, fix=error.fix) from None
        lines += _stated(said.result, said.statement)
        out.write("\n".join(lines) + "\n")
        if not sample:
            out.write("sample    none: `--sample 200` runs cases again\n")
            return ExitCode.OK
        if key is None and not trust and any(map(is_of_a_module, said.targets)):
            raise UsageError(
                "names modules outside the project, and no key vouches for it",
                where=str(file),
                fix="give --key, or --trust to import them",
            )
        return _sampled(said, project, sample, values.drawn_seed(seed), device, quiet,
                        out.write)  # fmt: skip


def _read(file: Path) -> dict[str, Any]:
    document = _parsed(read_plain(file, _MOST_BYTES, fix=_FIX), file)
    if not isinstance(document, dict):
        raise DecodeError("is no JSON object", where=str(file), fix=_FIX)
    return document


def _parsed(text: bytes, file: Path) -> Any:
    return strict_json.loads(text, where=str(file))


def _signed(
    document: dict[str, Any], key: Path | None, file: Path
) -> tuple[bytes, str]:
    """Return the in-toto statement of a file, and what is known of who signed it."""
    from kfuzz.grade.attestation import canonical

    enveloped = "payloadType" in document or "signatures" in document
    if key is None:
        if enveloped:
            return signing.payload_of(document), "signature not checked: no --key given"
        return canonical(document), "signature none: this is a statement, nobody signed"
    if not enveloped:
        raise signing.RefusedError("it is not signed: a statement, no certificate")
    public = signing.public_key(key)
    known_as = signing.keyid(public)
    return signing.opened(document, public), f"signature holds, key {known_as[:16]}…"


def _files(digests: Mapping[str, str], root: Path) -> list[str]:
    """Return a line for each file.

    Raises:
        RefusedError: if one is missing or another one.
    """
    from kfuzz.grade.attestation import digest, place_of

    lines = []
    for name, expected in digests.items():
        path = place_of(name, root)
        if path is None:
            raise signing.RefusedError(f"{name} is not here")
        found = digest(path)
        if found != expected:
            raise signing.RefusedError(
                f"{name} is another file: its SHA-256 is {found[:16]}…, certified is "
                f"{expected[:16]}…"
            )
        lines.append(f"file      {name}: {expected[:16]}… as certified")
    return lines


def _stated(result: str, statement: Statement) -> list[str]:
    from kfuzz.core.fingerprint import host_fingerprint
    from kfuzz.grade.levels import standing_of

    lines = [f"result    {result} on {statement.place}, seed {statement.seed}"]
    for kernel in statement.kernels:
        standing = standing_of(statement, kernel)
        thin = f", {kernel.tried.evidence} evidence" if kernel.tried else ""
        lines.append(
            f"kernel    {kernel.kernel}: {kernel.operator}, {standing.name}, "
            f"{kernel.cases} cases{thin}"
        )
    here, there = host_fingerprint(), statement.fingerprint
    other = [
        f"{name} {getattr(there, name)}, here {getattr(here, name)}"
        for name in ("kfuzz", "torch", "triton", "hypothesis")
        if getattr(there, name, "") != getattr(here, name, "")
    ]
    if other:
        lines.append(f"versions  {'; '.join(other)}")
    return lines


def _sampled(
    said: "Attested", project: Project, cases: int, seed: int, device: str, quiet: bool,
    write: Callable[[str], object],
) -> int:  # fmt: skip
    """Run a sample, print what came of it, and return the exit code."""
    from kfuzz.grade.grading import Grading
    from kfuzz.grade.verb import code_of

    config = RunConfig(
        targets=said.targets,
        root=project.root,
        corpus=project.corpus,
        seed=seed,
        budget=Budget(max_time=None, max_cases=cases),
        device=said.statement.device if device == "auto" else device,
    )
    grading = Grading(config)
    with stopping() as stop:
        events = grading.events(stop=stop)
        follow(events, stop, quiet=quiet, corpus=project.corpus_option)
    made = grading.statement()
    certified = {kernel.kernel: kernel for kernel in said.statement.kernels}
    for kernel in made.kernels:
        if kernel.source != certified[kernel.kernel].source:
            write(f"REFUSED {kernel.kernel}: its code is another than certified\n")
            return ExitCode.VIOLATION
        broken = [f for f in kernel.findings if f.state in CHARGED]
        decided = sum(graded.decided for graded in kernel.contracts.values())
        told = f"{len(broken)} violations" if broken else "no violation"
        write(
            f"sample    {kernel.kernel}: {kernel.cases} cases with seed {seed}, "
            f"{decided} verdicts, {told}\n"
        )
        for fault in broken:
            write(f"REFUSED {kernel.kernel}: {fault.contract}: {fault.message}\n")
    return code_of(made, fail_on_known=True)
