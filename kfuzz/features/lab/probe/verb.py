"""kfuzz probe: what a kernel's arithmetic is, against what it declares."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from kfuzz.cli import settings
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    CorpusOption,
    DeviceOption,
    FailOnOption,
    FormatOption,
    QuietOption,
    option,
    shared,
    targets_argument,
)
from kfuzz.cli.streams import ExitCode, Outcome, consume, report_stream, stopping
from kfuzz.core.declaration import Accumulator
from kfuzz.core.event import Event, KernelFinished
from kfuzz.engine.workers import zygotes
from kfuzz.features.lab.probe import arithmetic, orders
from kfuzz.features.lab.probe.orders import height
from kfuzz.features.lab.probe.sums import (
    Claim,
    Inapplicable,
    Reading,
    Subject,
    Unobserved,
)
from kfuzz.features.lab.probe.sums import Outcome as Stands
from kfuzz.report.text import one_line, table
from kfuzz.targets import load

DEFAULT_TIME: Final = "5m"


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


def probe(
    kernels: Annotated[
        list[str] | None,
        targets_argument(
            "As TARGET of `kfuzz run`, path.py::name; or a function of torch's, "
            "torch.matmul.",
            "KERNEL",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        option(
            "--dtype",
            "Probe this format only; repeatable. Default: all that are declared.",
            metavar="DTYPE",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        option(
            "--probe",
            "Only this probe; repeatable. `order`, `split`, `accumulator`, "
            "`alignment`, `fused`, `operands`, `contraction`, `subnormals`, `store`, "
            "`stochastic`, `intrinsics`.",
            metavar="NAME",
        ),
    ] = None,
    terms: Annotated[
        int | None,
        option(
            "--terms",
            "Most terms of a sum. Default: 64 interpreted, 256 on a CPU, 1024 on "
            "a GPU.",
            settings.COUNT,
        ),
    ] = None,
    adopt: Annotated[
        bool,
        option(
            "--adopt",
            "Print the declaration that states what was found, to be written by "
            "whoever vouches for it.",
        ),
    ] = False,
    max_time: Annotated[str, shared("max-time", "For all kernels.")] = DEFAULT_TIME,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    fail_on: FailOnOption = "new",
    format: FormatOption = "text",
    quiet: QuietOption = False,
    verbose: Annotated[
        bool, shared("verbose", "Raw observations, and probes without a result.")
    ] = False,
) -> int:
    """Infer a kernel's arithmetic and compare it with the declaration.

    Chosen inputs reveal the order of additions, the accumulator's width, what operands
    and stores are rounded to, and more. Where that differs from the declaration, the
    contracts judge the same input; what they report is a finding like any other.

    Exit codes: 0 nothing differs, 1 a finding, 2 usage, 3 internal error, 4 no such
    kernel, or no probe has anything to say, 5 device missing, 130 interrupted (findings
    are saved).
    """
    project = open_project(corpus)
    targets = project.targets(kernels)
    zygotes.expect(device)  # it imports torch while this process does

    from kfuzz.features.lab.probe.search import Probing
    from kfuzz.report import json_report
    from kfuzz.report.terminal import TerminalReport

    for name in only or ():
        settings.choose(name, NAMES, "--probe")
    load.limit_to(settings.duration(max_time))
    probing = Probing(
        targets, project.root, project.corpus,
        device=device, dtypes=dtype or (), probes=only or NAMES, terms=terms,
        max_time=settings.duration(max_time),
    )  # fmt: skip
    outcome = Outcome(fail_on_any=fail_on == "any")
    findings: dict[str, list[dict[str, object]]] = {}
    with report_stream() as out, ExitStack() as stack:
        stop = stack.enter_context(stopping())
        as_json = format == "json"
        terminal = TerminalReport(
            sys.stderr if as_json else out,
            quiet=quiet,
            corpus=project.corpus_option,
            summary=False,
        )
        report = stack.enter_context(terminal)

        def feed(event: Event) -> None:
            outcome.feed(event)
            report.feed(event)
            if isinstance(event, KernelFinished):
                findings[event.kernel] = [
                    json_report.finding_summary(f, event.paths.get(f.id, ""))
                    for f in event.findings
                ]

        consume(probing.events(stop=stop), feed, stop)
        if as_json:
            made = document(probing.kernels, probing.device, interrupted=stop.is_set())
            for kernel in made["kernels"]:
                kernel["findings"] = findings.get(kernel["kernel"], [])
            json_report.write(made, out)
        else:
            for line in reading_lines(probing.kernels, verbose=verbose, adopt=adopt):
                print(line, file=out)
    code = outcome.code()
    if code is ExitCode.OK and not any(k.says_something for k in probing.kernels):
        return ExitCode.NOTHING_TO_RUN
    return code


# What probes read of kernels: as a table, as a document, as a declaration to write.

_COLUMNS: Final = ("probe", "is", "declares", "verdict")
_IDLE: Final = Stands.NOT_APPLICABLE


def reading_lines(
    kernels: Sequence[KernelReadings], *, verbose: bool = False, adopt: bool = False
) -> Iterator[str]:
    """Yield a table for each kernel and format.

    Args:
        kernels: what was read of each.
        verbose: raw observations too, and probes that do not concern a kernel.
        adopt: the declaration that would state what was found.
    """
    for kernel in kernels:
        for formats in dict.fromkeys((r.dtype, r.output) for r in kernel.readings):
            own = [r for r in kernel.readings if (r.dtype, r.output) == formats]
            told = [r for r in own if verbose or r.found or r.outcome is not _IDLE]
            named = " to ".join(dict.fromkeys(formats))
            yield from ("", one_line(f"{kernel.kernel} ({kernel.operator}), {named}"))
            for line in table([_COLUMNS, *map(_row, told)]):
                yield f"  {line}"
            for reading in told:
                lines = [f"finding {reading.finding}"] if reading.finding else []
                if verbose or reading.outcome in (Stands.DIFFERS, Stands.UNDECIDED):
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


def document(
    kernels: Sequence[KernelReadings], device: str, *, interrupted: bool
) -> dict[str, Any]:
    """Return the document of `kfuzz probe --format json`, findings left out."""
    return {
        "device": device,
        "interrupted": interrupted,
        "kernels": [
            {
                "kernel": kernel.kernel,
                "operator": kernel.operator,
                "calls": kernel.calls,
                "claims": dict(kernel.claims),
                "readings": [_reading(r) for r in kernel.readings],
            }
            for kernel in kernels
        ],
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
    arithmetic.STOCHASTIC: arithmetic.stochastic,
    arithmetic.INTRINSICS: arithmetic.intrinsics,
}
# What "split" says follows from the orders that "order" finds.
NAMES: Final = (*PROBES, orders.SPLIT)


def readings(subject: Subject, wanted: Sequence[str] = NAMES) -> Iterator[Reading]:
    """Yield what the probes say of a kernel in one format.

    Args:
        subject: the kernel.
        wanted: names of probes.
    """
    for name, probe in PROBES.items():
        own = {name, orders.SPLIT} if name == orders.ORDER else {name}
        if not own & set(wanted):
            continue
        try:
            made = probe(subject)
            several = [made] if isinstance(made, Reading) else made
            yield from (r for r in several if r.probe in wanted)
        except Unobserved as why:
            inapplicable = isinstance(why, Inapplicable)
            outcome = Stands.NOT_APPLICABLE if inapplicable else Stands.UNDECIDED
            blank = subject.reading(name, "", "", outcome, reason=str(why))
            yield replace(blank, **why.known)  # type: ignore[arg-type]
