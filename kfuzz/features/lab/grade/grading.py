"""Grading: one campaign, folded to a conformance statement."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from kfuzz.contracts import platform
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.suite import select_classes
from kfuzz.core.codec import encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event, KernelFinished, Notice, RunFinished
from kfuzz.core.features import hook
from kfuzz.core.finding import Finding, host_fingerprint, version_of
from kfuzz.core.verdict import Graded, Soundness, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.search.schedule import named_apart
from kfuzz.execution.device.backends import BACKENDS, alike, resolve
from kfuzz.features.lab.grade.statement import (
    Calibrated,
    Calibration,
    Fault,
    Instrument,
    KernelStatement,
    KnownDefect,
    Statement,
    read_calibration,
    read_statement,
)
from kfuzz.store.corpus import Corpus
from kfuzz.targets.load import LoadedKernel, identity, load_all

# What is known of the power of contracts: a run names those of which nothing is.

UNCALIBRATED: Final = "uncalibrated"

# What is named of a longer list.
_NAMED: Final = 4
_KEPT: Final = Path(platform.__file__).parent / "statements"


class Calibrations:
    """What is known about the power of contracts on a device.

    Args:
        device: name of a backend.
        file: what `kfuzz calibrate` printed; None for the statements that kfuzz ships,
            which tell of the contracts that bind torch's own kernels.

    Raises:
        KfuzzError: if the file cannot be read.
    """

    def __init__(self, device: str, file: Path | None) -> None:
        # What cannot be read is said before the search, not after it.
        self._states = None if file is None else read_calibration(file).states
        self._device = device

    def state_of(self, contract: str, operator: Operator) -> Soundness:
        """Return what is known about a class on an operator; sound if nothing is."""
        name = operator.name_in_contracts
        if self._states is not None:
            return self._states.get(f"{contract}/{name}", Soundness.UNCALIBRATED)
        if name not in OPERATORS:
            return Soundness.UNCALIBRATED  # a user's: there are no witnesses
        states = _shipped_states(self._device)
        return states.get(f"{contract}/{operator.name}", Soundness.SOUND)

    def warn(
        self, kernels: Sequence[KernelSearch], finished: Sequence[KernelFinished]
    ) -> Iterator[Notice]:
        """Yield which contracts bore on kernels though nothing shows that they can.

        Args:
            kernels: of the run.
            finished: their results, in the same order.
        """
        found: dict[str, dict[str, None]] = {}
        for kernel, result in zip(kernels, finished, strict=True):
            operator = kernel.loaded.kernel.operator
            if kernel.loaded.target.reference:
                continue  # its operator is made of another's model
            for name, tally in result.contracts.items():
                if tally.verdict not in (Verdict.CONFORMS, Verdict.VIOLATES):
                    continue
                if self.state_of(name, operator) is not Soundness.SOUND:
                    found.setdefault(operator.name_in_contracts, {})[name] = None
        if found:
            texts = [
                f"{name} ({_some(list(c)) if name in OPERATORS else 'your own'})"
                for name, c in found.items()
            ]
            yield Notice(
                "",
                f"uncalibrated here: {_some(texts, '; ')}: no right and wrong "
                "kernels show that these contracts distinguish them",
                UNCALIBRATED,
            )


def shipped_statement(device: str) -> Path | None:
    """Return the statement that kfuzz ships for a backend, None if there is none."""
    kind = BACKENDS[device].torch_type
    return next(_KEPT.glob(f"torch-*-{kind}.json"), None)


@cache
def _shipped_states(device: str) -> dict[str, Soundness]:
    """Return what the shipped statement says of contracts, by identifier.

    An operator in which no fault of a class can be planted says nothing against the
    class where it is sound for others.
    """
    file = shipped_statement(device)
    states = {} if file is None else read_statement(file).states
    shown = {at.partition("/")[0] for at, s in states.items() if s is Soundness.SOUND}
    return {
        at: Soundness.SOUND
        if state is Soundness.UNCALIBRATED and at.partition("/")[0] in shown
        else state
        for at, state in states.items()
    }


def _some(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - _NAMED
    shown = separator.join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


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


def resting_on(statement: Statement, on: Calibration | Statement) -> Statement:
    """Return a statement that rests on a calibration made before or after it.

    Args:
        statement: the statement.
        on: the calibration, or another statement that rests on one.
    """
    rests = on.calibration if isinstance(on, Statement) else _calibrated(on)
    states, kernels = on.states, []
    for kernel in statement.kernels:
        contracts = {}
        for name, graded in kernel.contracts.items():
            at = f"{name}/{kernel.name_in_contracts}"
            state = states.get(at, Soundness.UNCALIBRATED)
            contracts[name] = replace(graded, calibration=state)
        kernels.append(replace(kernel, contracts=contracts))
    return replace(statement, kernels=tuple(kernels), calibration=rests)


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
        self._backend, devices = resolve(self._config.device)
        self._device, *others = alike(self._backend, devices)
        self._rests: Calibration | Statement | None = calibration
        if calibration is None and (shipped := shipped_statement(self._backend.name)):
            self._rests = read_statement(shipped)
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
        homes = Corpus(self._config.corpus).homes
        loaded = named_apart(loaded, homes, self._config.root)
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
        made = Statement(
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
            interrupted=ended is None or ended.interrupted,
            notices=tuple(self._notices),
        )
        return made if self._rests is None else resting_on(made, self._rests)

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
                name: Graded(tally.verdict, tally.decided, tally.undecided)
                for name, tally in event.contracts.items()
                if name in binding or tally.verdict is not Verdict.NOT_APPLICABLE
            },
            refusals=event.refusals,
            findings=tuple(_fault(f, listed) for f in event.findings),
            defects=listed,
            tried=event.tried and replace(event.tried, seconds=0.0),
            proof=event.proof,
        )

    def _listed(self, kernel: str) -> tuple[KnownDefect, ...]:
        if not self._platform:
            return ()
        from kfuzz.contracts.platform.table import DEFECTS, holds

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
    found = {name: encode(value) for name, value in declaration.claims().items()}
    return {
        name: ", ".join(map(str, v)) if isinstance(v, list) else str(v)
        for name, v in found.items()
    }


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
    has = BACKENDS[backend].has
    if not has.native:
        found.append(Instrument.ADDRESS_CHECK)
    if has.asynchronous or not has.native:  # repeats under delays, a log of accesses
        found.append(Instrument.RACE_CHECK)
    return tuple(found)
