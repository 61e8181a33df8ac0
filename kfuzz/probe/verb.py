"""kfuzz probe: what a kernel's arithmetic is, against what it declares."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

from kfuzz.cli import values
from kfuzz.cli.exit_codes import ExitCode, Outcome
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
from kfuzz.cli.standard_streams import consume, report_stream, stopping
from kfuzz.core.event import Event, KernelFinished
from kfuzz.engine.workers import zygotes
from kfuzz.report.output_files import require_writable, write_or_raise
from kfuzz.targets import importing

DEFAULT_TIME: Final = "5m"


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
            "`stochastic`, `intrinsics`, `special`, `determinism`, `batch`.",
            metavar="NAME",
        ),
    ] = None,
    terms: Annotated[
        int | None,
        option(
            "--terms",
            "Most terms of a sum. Default: 64 interpreted, 256 on a CPU, 1024 on "
            "a GPU.",
            values.COUNT,
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
    svg: Annotated[
        Path | None,
        option("--svg", "Draw the orders of additions there.", metavar="FILE"),
    ] = None,
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
    if svg is not None:
        require_writable(svg, where=str(svg))
    project = open_project(corpus)
    targets = project.targets(kernels)
    zygotes.expect(device)  # it imports torch while this process does

    from kfuzz.probe import rendering as readings
    from kfuzz.probe.catalogue import NAMES
    from kfuzz.probe.search import ProbeConfig, Probing
    from kfuzz.report import json_report
    from kfuzz.report.terminal import TerminalReport

    for name in only or ():
        values.choose(name, NAMES, "--probe")
    importing.limit_to(values.duration(max_time))
    probing = Probing(
        ProbeConfig(
            targets=targets,
            root=project.root,
            corpus=project.corpus,
            device=device,
            dtypes=tuple(dtype or ()),
            probes=tuple(only) if only else NAMES,
            terms=terms,
            max_time=values.duration(max_time),
        )
    )
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
        told = stack.enter_context(terminal)

        def feed(event: Event) -> None:
            outcome.feed(event)
            told.feed(event)
            if isinstance(event, KernelFinished):
                findings[event.kernel] = [
                    json_report.finding_summary(f, event.paths.get(f.id, ""))
                    for f in event.findings
                ]

        consume(probing.events(stop=stop), feed, stop)
        if as_json:
            made = readings.document(
                probing.kernels, probing.device, interrupted=stop.is_set()
            )
            for kernel in made["kernels"]:
                kernel["findings"] = findings.get(kernel["kernel"], [])
            json_report.write(made, out)
        else:
            shown = readings.console(out)
            readings.print_readings(
                probing.kernels, shown, verbose=verbose, adopt=adopt
            )
        if svg is not None:
            if picture := readings.drawing(probing.kernels):
                write_or_raise(svg, picture)
            else:
                what = f"kfuzz: no order was found, {svg} is not written"
                print(what, file=sys.stderr)
    code = outcome.code()
    if code is ExitCode.OK and not any(k.says_something for k in probing.kernels):
        return ExitCode.NOTHING_TO_RUN
    return code
