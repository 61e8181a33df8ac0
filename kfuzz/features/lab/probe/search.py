"""Probing kernels: observations by their children, differences judged by contracts."""

import importlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, Final

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.core.declaration import Accumulator
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.event import Event, Progress
from kfuzz.core.verdict import ATTRIBUTED
from kfuzz.engine.search.found import first_finding, taken_to_minimum
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.features.examining import examined
from kfuzz.features.lab.probe import arithmetic, orders
from kfuzz.features.lab.probe.orders import height
from kfuzz.features.lab.probe.sums import (
    Claim,
    Inapplicable,
    Outcome,
    Reading,
    Subject,
    Unobserved,
    data_format,
)
from kfuzz.report.text import one_line, table
from kfuzz.store.corpus import Corpus
from kfuzz.targets.load import LoadedKernel, load_all


@dataclass(frozen=True)
class KernelReadings:
    """All readings of one kernel.

    Attributes:
        kernel: node id.
        operator: operator name.
        readings: by format, then in the order of the probes.
        calls: calls of the kernel that were made for them.
        narrowed: the declared formats that were probed, where not all were.
    """

    kernel: str
    operator: str
    readings: tuple[Reading, ...]
    calls: int = 0
    narrowed: tuple[str, ...] = ()

    @property
    def says_something(self) -> bool:
        """Whether any probe found what the arithmetic is."""
        return any(reading.found for reading in self.readings)

    @property
    def claims(self) -> dict[str, Claim]:
        """What all formats together would declare.

        A claim that formats contradict each other in is left out: one declaration
        holds for all of them. Of heights the greatest is taken, and a height never
        goes without the sizes at which it was found.
        """
        dtypes = {(r.dtype, r.output) for r in self.readings}
        found: dict[str, dict[tuple[str, str], Claim]] = {}
        for reading in self.readings:
            for key, value in reading.claims.items():
                found.setdefault(key, {})[reading.dtype, reading.output] = value
        made: dict[str, Claim] = {}
        for key, given in found.items():
            values = set(given.values())
            models = [Accumulator.parse(v) for v in values if key == "accumulator"]
            if given.keys() != dtypes:
                continue
            if len(values) == 1:
                made[key] = next(iter(values))
            elif models and all(m.model == "blocked" for m in models):
                made[key] = str(max(models, key=lambda m: m.count))
        if "shape_class" in found and not {"shape_class", "accumulator"} <= set(made):
            made.pop("shape_class", None)
            made.pop("accumulator", None)
        if made and self.narrowed:
            made["dtypes"] = self.narrowed
        return made


# What probes read of kernels: as a table, as a document, as a declaration to write.

_COLUMNS: Final = ("probe", "is", "declares", "verdict")
_IDLE: Final = Outcome.NOT_APPLICABLE


def reading_lines(
    kernel: KernelReadings, *, verbose: bool = False, adopt: bool = False
) -> Iterator[str]:
    """Yield a table for each format of a kernel.

    Args:
        kernel: what was read of it.
        verbose: raw observations too, and probes that do not concern a kernel.
        adopt: the declaration that would state what was found.
    """
    for formats in dict.fromkeys((r.dtype, r.output) for r in kernel.readings):
        own = [r for r in kernel.readings if (r.dtype, r.output) == formats]
        told = [r for r in own if verbose or r.found or r.outcome is not _IDLE]
        named = " to ".join(dict.fromkeys(formats))
        yield from ("", one_line(f"{kernel.kernel} ({kernel.operator}), {named}"))
        for line in table([_COLUMNS, *map(_row, told)]):
            yield f"  {line}"
        for reading in told:
            lines = [f"finding {reading.finding}"] if reading.finding else []
            if verbose or reading.outcome in (Outcome.DIFFERS, Outcome.UNDECIDED):
                lines += reading.observed
            yield from (f"  {reading.probe}: {one_line(line)}" for line in lines)
        if silent := dict.fromkeys(r.probe for r in own if r not in told):
            yield f"  not applicable: {', '.join(silent)}"
    yield from adoption(kernel) if adopt else ()


def _row(reading: Reading) -> tuple[str, ...]:
    terms = f" ({reading.terms} terms)" if reading.probe == "order" else ""
    shown = "; ".join(filter(None, (reading.found, reading.reason)))
    outcome = reading.outcome.value
    return reading.probe + terms, one_line(shown), reading.declared, outcome


def adoption(kernel: KernelReadings) -> Iterator[str]:
    """Yield the declaration that would say what was found, and what it rests on."""
    claims = kernel.claims
    if not claims:
        yield f"\n{kernel.kernel}: nothing else to declare"
        return
    yield f"\n{kernel.kernel}: to declare what was found, give kfuzz.kernel"
    for key, value in claims.items():
        yield f"  {key}={value!r},"
    yield "It holds for what was probed. Nothing is changed unless you write it."


def document(kernel: KernelReadings) -> dict[str, Any]:
    """Return what was read of a kernel as plain values."""
    return {
        "kernel": kernel.kernel,
        "operator": kernel.operator,
        "calls": kernel.calls,
        "claims": dict(kernel.claims),
        "readings": [_reading(r) for r in kernel.readings],
    }


def _reading(reading: Reading) -> dict[str, Any]:
    tree = None
    if reading.tree is not None:
        tree = {"height": height(reading.tree), "order": reading.tree}
    return {
        "probe": reading.probe,
        "dtype": reading.dtype,
        "output": reading.output,
        "terms": reading.terms or None,
        "is": reading.found or None,
        "declares": reading.declared or None,
        "verdict": reading.outcome.value,
        "reason": reading.reason or None,
        "claims": dict(reading.claims),
        "tree": tree,
        "observed": list(reading.observed),
        "finding": reading.finding or None,
    }


# All probes, in the order in which they are reported.

Probe = Callable[[Subject], Reading | Iterator[Reading]]

PROBES: Final[Mapping[str, Probe]] = {
    orders.ORDER: orders.order,
    arithmetic.ACCUMULATOR: arithmetic.accumulator,
    arithmetic.ALIGNMENT: arithmetic.alignment,
    arithmetic.FUSED: arithmetic.fused,
    arithmetic.OPERANDS: arithmetic.operands,
    arithmetic.CONTRACTION: arithmetic.contraction,
    arithmetic.SUBNORMALS: arithmetic.subnormals,
    arithmetic.STORE: arithmetic.store,
    arithmetic.INTRINSICS: arithmetic.intrinsics,
}
NAMES: Final = tuple(PROBES)


def readings(subject: Subject, wanted: Sequence[str] = NAMES) -> Iterator[Reading]:
    """Yield what the probes say of a kernel in one format.

    Args:
        subject: the kernel.
        wanted: names of probes.
    """
    for name in (n for n in PROBES if n in wanted):
        try:
            made = PROBES[name](subject)
            yield from [made] if isinstance(made, Reading) else made
        except Unobserved as why:
            inapplicable = isinstance(why, Inapplicable)
            outcome = Outcome.NOT_APPLICABLE if inapplicable else Outcome.UNDECIDED
            blank = subject.reading(name, "", "", outcome, reason=str(why))
            yield replace(blank, **why.known)  # type: ignore[arg-type]


# Probing them.

# For one finding to be reduced and explained.
REDUCE_SECONDS: Final = 45.0
ADMITTED: Final = "what is declared allows it: no contract reports these results"


class Probing:
    """Probes kernels one after the other.

    Args:
        targets: as on the command line; functions of torch's too.
        root: the project.
        corpus: folder of findings.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        dtypes: formats; empty for all that a kernel declares.
        probes: names of probes.
        terms: most terms of a sum; None for what the device is fast enough for.
        max_time: seconds for all; None for no limit.

    Attributes:
        kernels: what was read of each, as far as it has come.
        device: backend, known after the first event.
    """

    def __init__(
        self, targets: Sequence[str], root: Path, corpus: Path, *, device: str = "auto",
        dtypes: Sequence[str] = (), probes: Sequence[str] = NAMES,
        terms: int | None = None, max_time: float | None = None,
    ) -> None:  # fmt: skip
        self.kernels: list[KernelReadings] = []
        self.device = device
        self._targets, self._root, self._corpus = targets, root, corpus
        self._dtypes, self._probes, self._terms = dtypes, probes, terms
        self._began, self._end = 0.0, max_time or float("inf")
        self._stop = threading.Event()

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Probe, and yield what happens, ending with one `RunFinished`.

        Raises:
            KfuzzError: before the first event, on targets or settings that cannot be
                obeyed; later, if a kernel cannot be run at all.
        """
        self._began, self._stop = time.monotonic(), stop
        self._end += self._began
        yield from examined(
            self._loaded, self._probed,
            root=self._root, corpus=self._corpus, device=self.device,
            stop=stop, expired=self._expired,
        )  # fmt: skip

    def _loaded(self, backend: Backend) -> list[LoadedKernel]:
        self.device = backend.name
        targets = resolved(self._targets, backend.on.torch_type)
        loaded = load_all(targets, root=self._root)
        _require_dtypes(loaded, self._dtypes)
        return loaded

    def _expired(self) -> bool:
        return self._stop.is_set() or time.monotonic() >= self._end

    def _probed(
        self, turns: KernelSearch, corpus: Corpus
    ) -> Generator[Event, None, None]:
        """Probe one kernel in every format, and have differences judged."""
        kernel, declared = turns.loaded.kernel, turns.loaded.kernel.declaration.dtypes
        limits, place = BACKENDS[self.device].limits, len(self.kernels)
        asked = set(self._dtypes)
        wanted = tuple(
            d for d in declared if not asked or {d, data_format(kernel, d)} & asked
        )
        blank = KernelReadings(
            turns.node_id, kernel.operator.name, (),
            narrowed=wanted if wanted != declared else (),
        )  # fmt: skip
        self.kernels.append(blank)
        made: list[Reading] = []
        calls = 0
        for dtype in wanted:
            data = data_format(kernel, dtype)
            subject = Subject(
                kernel, data, turns.runner.observe, turns.budget, output=dtype,
                most_terms=self._terms or limits.terms, most_pairs=limits.pairs,
                rows_per_call=limits.rows,
            )  # fmt: skip
            for reading in readings(subject, self._probes):
                settled = reading
                if reading.outcome is Outcome.DIFFERS:
                    settled = yield from self._judged(turns, reading, corpus)
                made.append(settled)
                turns.record.cases = calls + subject.calls
                self.kernels[place] = replace(
                    blank, readings=tuple(made), calls=turns.record.cases
                )
                yield Progress(
                    kernel=turns.node_id,
                    elapsed_s=time.monotonic() - self._began,
                    cases=turns.record.cases,
                    worst_ratio=0.0,
                    findings=len(turns.findings),
                    kernels_done=place,
                )
            calls += subject.calls

    def _judged(
        self, turns: KernelSearch, reading: Reading, corpus: Corpus
    ) -> Generator[Event, None, Reading]:
        """Return a difference as the contracts see it, its finding on disk.

        Yields what happens; where no contract reports it, it is left undecided.
        """
        reason = ADMITTED
        for witness in reading.witnesses:
            turn = Round(turns, stop=self._stop, deadline=self._end)
            report = turn.judge(witness)
            if turn.error is not None:
                raise turn.error
            if report is None:
                raise Stopped
            if turn.found is not None:
                finding = first_finding(turns, *turn.found, seed=0)
                yield from taken_to_minimum(
                    turns, finding, corpus,
                    seconds=lambda: REDUCE_SECONDS, stopped=self._expired,
                )  # fmt: skip
            failure = (turn.found[1] if turn.found else report).failure
            symptom = failure and failure.signature(turns.name).symptom
            same = [
                f for f in turns.findings.values() if f.signature.symptom == symptom
            ]
            for found in same:
                if found.state in ATTRIBUTED:
                    return replace(reading, finding=found.id)
            if failure and same:
                reason = f"{same[0].id} is {same[0].state}"
            elif why := report.error or report.unsupported:
                reason = why
        return replace(reading, outcome=Outcome.UNDECIDED, claims={}, reason=reason)


def _require_dtypes(loaded: list[LoadedKernel], dtypes: Sequence[str]) -> None:
    """Check that some kernel declares each format asked for.

    Raises:
        UsageError: if none does.
    """
    kernels = [k.kernel for k in loaded]
    declared = {d for k in kernels for d in k.declaration.dtypes}
    declared |= {data_format(k, d) for k in kernels for d in k.declaration.dtypes}
    for dtype in dtypes:
        if dtype not in declared:
            fix = suggestion(dtype, sorted(declared))
            what = f"no kernel here declares {dtype}"
            raise UsageError(what, where="--dtype", fix=fix)


def resolved(targets: Sequence[str], device: str) -> tuple[str, ...]:
    """Return targets in which kernels stand for functions of torch's.

    Args:
        targets: as on the command line.
        device: torch's type of the device.

    Raises:
        UsageError: if no kernel stands for a function.
    """
    found: list[str] = []
    for target in targets:
        if target.startswith("torch.") and ":" not in target and target[-3:] != ".py":
            found += _targets_of(target, device)
        else:
            found.append(target)
    return tuple(found)


# Which of the platform's kernels stand for a function of torch's.


def _targets_of(function: str, device: str) -> tuple[str, ...]:
    """Return the targets, "module:kernel", that call a function of torch's.

    Args:
        function: its dotted name, "torch.matmul".
        device: "cpu" or "cuda".

    Raises:
        UsageError: if it is none, or no kernel calls it as it is.
    """
    import torch

    module = f"kfuzz.contracts.platform.torch_{device}"
    importlib.import_module(module)
    found: object = torch
    for part in function.split(".")[1:]:
        found = getattr(found, part, None)
    named = [b.name for b in REGISTRY[module] if found and b.function is found]
    if not named:
        every = [f"{module}:{b.name}" for b in REGISTRY[module]]
        calling = [f"{module}:{b.name}" for b in REGISTRY[module]
                   if function.rpartition(".")[2] in _names(b)]  # fmt: skip
        raise UsageError(
            f"no kernel of the platform's is {function} itself",
            where=function,
            fix=f"name one that calls it: {', '.join(calling)}"
            if calling
            else "name one of them: "
            + suggestion(f"{module}:{function.replace('.', '_')}", every),
        )
    return tuple(f"{module}:{name}" for name in named)


def _names(bound: BoundKernel) -> tuple[str, ...]:
    """Return the names that a kernel's code mentions."""
    code = getattr(bound.function, "__code__", None)
    return code.co_names if isinstance(code, CodeType) else ()
