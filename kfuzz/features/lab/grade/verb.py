"""kfuzz grade: run the suite and state what a kernel, or the platform, is worth."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Final

from kfuzz.cli import settings
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    CorpusOption,
    DeviceOption,
    JobsOption,
    QuietOption,
    TargetsArgument,
    option,
    shared,
)
from kfuzz.cli.streams import ExitCode, code_of_search, follow, report_stream, stopping
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import Budget
from kfuzz.core.codec import encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event, KernelFinished, Notice, RunFinished
from kfuzz.core.features import hook
from kfuzz.core.finding import Finding, host_fingerprint, version_of
from kfuzz.core.statement import (
    Calibrated,
    Calibration,
    Fault,
    Graded,
    Instrument,
    KernelStatement,
    KnownDefect,
    Soundness,
    Statement,
)
from kfuzz.core.verdict import CHARGED, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.engine.search.preconditions import kernels_of
from kfuzz.engine.search.self_check import UNCALIBRATED, shipped_statement
from kfuzz.execution.device.backends import BACKENDS, alike, resolve
from kfuzz.report.files import require_writable, write_or_raise
from kfuzz.store import files
from kfuzz.store.files import read_calibration, read_statement
from kfuzz.targets import load
from kfuzz.targets.load import LoadedKernel, identity, load_all

DEFAULT_CASES: Final = 300


def grade(
    targets: TargetsArgument = None,
    platform: Annotated[
        bool, option("--platform", "Grade torch's own kernels on the device instead.")
    ] = False,
    statement: Annotated[
        Path | None,
        option(
            "--statement",
            "Take this JSON statement instead of making one; with --calibration "
            "it then rests on that.",
            metavar="FILE",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        option(
            "--against",
            "Compare with another JSON statement: what differs, and what arbitrates.",
            metavar="FILE",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        shared(
            "calibration",
            "What `kfuzz calibrate --format json` printed; uncalibrated contracts do "
            "not count. Default: what kfuzz ships.",
        ),
    ] = None,
    max_cases: Annotated[
        int | None,
        shared(
            "max-cases",
            f"Cases for each kernel; {DEFAULT_CASES} unless --max-time is given.",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        shared(
            "max-time",
            "For the whole run, from the first case on: 90, 90s, 10m, 1h, 1h30m.",
        ),
    ] = None,
    seed: Annotated[
        int | None, shared("seed", "Default: a fresh one, stated.", "N")
    ] = None,
    prove: Annotated[
        bool,
        shared("prove", "State what is proved of each kernel, too, with the premises."),
    ] = False,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    fail_on: Annotated[
        str,
        shared(
            "fail-on",
            "Exit 1 on new findings only, or on known ones and listed defects too.",
        ),
    ] = "new",
    format: Annotated[
        str, shared("format", kind=settings.one_of("text", "markdown", "json"))
    ] = "text",
    markdown: Annotated[
        Path | None,
        option(
            "--markdown", "Write the statement there too, as Markdown.", metavar="FILE"
        ),
    ] = None,
    json: Annotated[
        Path | None,
        option(
            "--json",
            "Write the statement there too, as JSON: what --against and "
            "--statement read.",
            metavar="FILE",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        option(
            "--certificate",
            "Write it there as an in-toto statement about the kernels' files; with "
            "--key signed, a certificate.",
            metavar="FILE",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        option(
            "--key",
            "Private key that signs the certificate: Ed25519 or a NIST curve, PEM or "
            "OpenSSH; needs pip install 'kfuzz[certificate]'.",
            metavar="FILE",
        ),
    ] = None,
    subject: Annotated[
        list[Path] | None,
        option(
            "--subject",
            "File that the certificate is about, such as a wheel; repeatable. "
            "Default: the files that bind the kernels.",
            metavar="FILE",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> int:
    """Run the suite and write a conformance statement.

    Exit codes: 0 no violation, 1 a violation that is neither known nor a listed
    defect, 2 usage, 3 internal error, 4 nothing to run, or no value of some
    kernel was compared, 5 device missing, 130
    interrupted, violation or not (the statement says so).
    """
    started = time.monotonic()
    if bool(statement) + platform + bool(targets) > 1:
        raise UsageError("--statement, --platform and a target exclude each other")
    if max_time is None and max_cases is None:
        max_cases = DEFAULT_CASES
    budget = Budget(
        max_time=None if max_time is None else settings.duration(max_time),
        max_cases=max_cases,
    )
    load.limit_to(budget.max_time)
    # Whatever cannot be read or written is said before the search, not after it.
    if certificate is None and (key or subject):
        raise UsageError("--key and --subject are a certificate's: add --certificate")
    for path in filter(None, (markdown, json, certificate)):
        require_writable(path, where=str(path))
    other = None if against is None else read_statement(against)
    rests = None if calibration is None else read_calibration(calibration)
    certify = _certifier(certificate, key, subject or [], corpus)
    with report_stream() as out:
        if statement is not None:
            made = read_statement(statement)
            made = made if rests is None else resting_on(made, rests)
        else:
            project = open_project(corpus)
            config = RunConfig(
                targets=() if platform else project.targets(targets),
                root=project.root,
                corpus=project.corpus,
                seed=settings.drawn_seed(seed),
                budget=budget,
                started=started,
                device=device,
                jobs=jobs,
                prove=prove,
            )

            grading = Grading(config, platform=platform, calibration=rests)
            with stopping() as stop:
                events = grading.events(stop=stop)
                follow(events, stop, quiet=quiet, corpus=project.corpus_option)
            made = grading.statement()
        shown = _rendered(made, other, format)
        out.write(shown)
        for place, kind in ((markdown, "markdown"), (json, "json")):
            if place is not None:
                write_or_raise(place, _rendered(made, None, kind))
        certify(made)
    return code_of(made, fail_on_known=fail_on == "any")


def _certifier(
    file: Path | None, key: Path | None, subjects: list[Path], corpus: str | None
) -> Callable[[Statement], None]:
    """Return what writes a certificate; a key that cannot sign is said at once."""
    if file is None:
        return lambda made: None
    from kfuzz.features.lab.grade import certificate as signing
    from kfuzz.features.lab.grade.certificate import attestation, canonical

    if key is not None:
        signing.envelope(b"", key)

    def certify(made: Statement) -> None:
        root = open_project(corpus).root
        payload = canonical(attestation(made, root=root, subjects=subjects))
        text = payload.decode()
        if key is not None:
            text = files.line(signing.envelope(payload, key))
        write_or_raise(file, text + "\n")

    return certify


def code_of(statement: Statement, *, fail_on_known: bool) -> ExitCode:
    """Return the exit code that a statement stands for.

    Args:
        statement: what was made or read.
        fail_on_known: whether known findings and listed defects fail it, too.
    """
    from kfuzz.features.lab.grade.statement_text import is_judged

    faults = [f for k in statement.kernels for f in k.findings if f.state in CHARGED]
    if not fail_on_known:
        faults = [f for f in faults if f.state is not State.KNOWN and not f.listed]
    graded = [g for k in statement.kernels for g in k.contracts.values()]
    return code_of_search(
        interrupted=statement.interrupted,
        violated=bool(faults),
        failed=any(g.verdict is Verdict.ERROR for g in graded),
        ran=bool(statement.kernels) and all(map(is_judged, statement.kernels)),
    )


def _rendered(made: Statement, other: Statement | None, kind: str) -> str:
    """Return a statement, and what comes of comparing it with another, as text."""
    from kfuzz.features.lab.grade import against as sides
    from kfuzz.features.lab.grade import statement_text as pages

    compared = None if other is None else sides.compare(made, other)
    if kind == "json":
        document = {"format": 1, **pages.statement_document(made)}
        if compared is not None:
            document["against"] = encode(compared)
        return files.dumps(document)
    as_page = kind == "markdown"
    lines = pages.statement_page(made, markdown=as_page)
    if compared is not None:
        lines += ["", *sides.comparison_lines(compared, markdown=as_page)]
    return "\n".join(lines) + "\n"


# Grading: one campaign, folded to a conformance statement.

# Modules that bind the platform's own kernels as declared for torch's type of a device.
PLATFORM: Final = "kfuzz.contracts.platform.torch_{}"


def platform_config(config: RunConfig) -> RunConfig:
    """Return a configuration whose targets are the platform's own kernels.

    Raises:
        UsageError: for Triton's interpreter, in which the platform has none.
        BackendError: if the device is not there.
    """
    backend, _ = resolve(config.device)
    device = config.device
    if not backend.has.native:
        if config.device == backend.name:
            raise UsageError(
                f"torch's own kernels do not run {backend.place}",
                where=f"--platform --device {backend.name}",
                fix="give --device cpu or cuda",
            )
        device = backend.torch_type
    target = PLATFORM.format(backend.torch_type)
    return replace(config, targets=(target,), device=device)


def resting_on(statement: Statement, calibration: Calibration) -> Statement:
    """Return a statement that rests on a calibration made before or after it."""
    kernels = []
    for kernel in statement.kernels:
        contracts = {}
        for name, graded in kernel.contracts.items():
            state = calibration.state_of(f"{name}/{kernel.name_in_contracts}")
            contracts[name] = replace(graded, calibration=state)
        kernels.append(replace(kernel, contracts=contracts))
    return replace(
        statement, kernels=tuple(kernels), calibration=_calibrated(calibration)
    )


class Grading:
    """One grade: its events as they come, and the statement at the end.

    Args:
        config: what to test and how long.
        platform: whether the kernels are the platform's own, whose listed defects
            are named.
        calibration: what it rests on; by default what kfuzz ships for the device.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        platform: bool = False,
        calibration: Calibration | None = None,
    ) -> None:
        self._config = platform_config(config) if platform else config
        self._platform = platform
        self._states: dict[str, Soundness] = {}
        self._rests: Calibrated | None = None
        self._backend, devices = resolve(self._config.device)
        self._device, *others = alike(self._backend, devices)
        if calibration is not None:
            self._states = {c.identifier: c.state for c in calibration.contracts}
            self._rests = _calibrated(calibration)
        elif (shipped := shipped_statement(self._backend.name)) is not None:
            made = read_statement(shipped)
            self._rests = made.calibration
            for kernel in made.kernels:
                for name, graded in kernel.contracts.items():
                    at = f"{name}/{kernel.name_in_contracts}"
                    self._states[at] = graded.calibration
        if len(devices) > 1 + len(others):
            # A statement is about one kind of device.
            listed = ",".join((self._device, *others))
            self._config = replace(self._config, device=listed)
        self._kernels: dict[str, LoadedKernel] = {}
        self._finished: list[KernelFinished] = []
        self._notices: dict[str, None] = {}
        self._ended: RunFinished | None = None

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Search, and yield the campaign's events.

        Raises:
            KfuzzError: as `kfuzz.engine.search.campaign.run`.
        """
        loaded = load_all(self._config.targets, root=self._config.root)
        loaded = kernels_of(self._config, loaded)
        self._kernels = {kernel.node_id: kernel for kernel in loaded}
        for event in run_kernels(
            self._config, loaded, stop=stop, prover=hook("prover")
        ):
            if isinstance(event, KernelFinished):
                self._finished.append(event)
            elif isinstance(event, RunFinished):
                self._ended = event
            elif isinstance(event, Notice):
                if event.about == UNCALIBRATED:
                    continue  # the statement says it of each contract
                shown = f"{event.kernel}: " if event.kernel else ""
                self._notices[shown + event.message] = None
            yield event

    def statement(self) -> Statement:
        """Return what the events came to."""
        config, ended = self._config, self._ended
        name, driver = self._backend.describe(self._device)
        in_force = select_classes(config.contracts, config.exclude_contracts)
        return Statement(
            device=self._backend.name,
            fingerprint=host_fingerprint(device=name, driver=driver),
            seed=config.seed,
            max_cases=config.budget.max_cases,
            max_time=config.budget.max_time,
            elapsed_s=round(ended.elapsed_s, 1) if ended else 0.0,
            classes=tuple(c.id for c in ATTRIBUTION if c.id in in_force),
            kernels=tuple(map(self._stated, self._finished)),
            instruments=_instruments(self._backend.name, self._finished),
            platform=self._platform,
            calibration=self._rests,
            interrupted=ended is None or ended.interrupted,
            notices=tuple(self._notices),
        )

    def _stated(self, event: KernelFinished) -> KernelStatement:
        loaded = self._kernels[event.kernel]
        kernel = loaded.kernel
        operator, claims = kernel.operator, kernel.declaration
        bound = operator.tolerance
        binding = {c.id for c in ATTRIBUTION if c.binds(operator, claims)}
        listed = self._listed(kernel.name)
        return KernelStatement(
            kernel=event.kernel,
            name=loaded.name,
            operator=operator.name,
            forward="" if operator.forward is None else operator.forward.name,
            source=identity(kernel.function),
            claims=claims_of(claims),
            bound=f"{bound.structure}: {bound.bound}; {bound.derivation}",
            cases=event.cases,
            worst_ratio=event.worst_ratio,
            contracts={
                name: Graded(
                    tally.verdict,
                    tally.decided,
                    tally.undecided,
                    self._states.get(
                        f"{name}/{operator.name_in_contracts}", Soundness.UNCALIBRATED
                    ),
                )
                for name, tally in event.contracts.items()
                if name in binding or tally.verdict is not Verdict.NOT_APPLICABLE
            },
            refusals=event.refusals,
            findings=tuple(_fault(f, listed) for f in event.findings),
            defects=listed,
            tried=event.tried,
            proof=event.proof,
        )

    def _listed(self, kernel: str) -> tuple[KnownDefect, ...]:
        if not self._platform:
            return ()
        from kfuzz.contracts.platform.defects import DEFECTS
        from kfuzz.contracts.platform.table import holds

        version = version_of("torch")
        return tuple(
            KnownDefect(d.contract, d.where, d.evidence)
            for d in DEFECTS
            if kernel in d.kernels and holds(d, self._backend.name, version)
        )


def _calibrated(made: Calibration) -> Calibrated:
    sound = sum(c.state is Soundness.SOUND for c in made.contracts)
    unsound = tuple(c.identifier for c in made.unsound)
    return Calibrated(
        made.device, made.seed, made.cases, made.conforming_cases, sound, unsound
    )


def claims_of(declaration: Declaration) -> dict[str, str]:
    """Return the declarations that differ from the language's defaults, as text."""
    default = Declaration()
    return {
        f.name: _text(value)
        for f in fields(Declaration)
        if (value := getattr(declaration, f.name)) != getattr(default, f.name)
    }


def _text(value: object) -> str:
    shown = encode(value)
    return ", ".join(map(str, shown)) if isinstance(shown, list) else str(shown)


def _fault(finding: Finding, listed: tuple[KnownDefect, ...]) -> Fault:
    contract, kind = finding.signature.contract, finding.signature.kind
    known = any(d.contract == contract for d in listed)
    return Fault(
        finding.id, contract, kind, finding.state, finding.failure.message, known
    )


def _instruments(
    backend: str, finished: Sequence[KernelFinished]
) -> tuple[Instrument, ...]:
    """Return what looked at all kernels that were searched, besides their results."""
    found = [Instrument.GUARD_ZONES]
    fenced = [kernel.fenced for kernel in finished if kernel.cases]
    if fenced and all(fenced):
        found.append(Instrument.PAGE_GUARDS)
    if not BACKENDS[backend].has.native:
        found += [Instrument.ADDRESS_CHECK, Instrument.RACE_CHECK]
    return tuple(found)
