"""kfuzz probe: what a kernel's arithmetic is, against what it declares."""

import sys
from contextlib import ExitStack
from typing import Annotated, Final

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
from kfuzz.core.event import Event, KernelFinished
from kfuzz.engine.workers import zygotes
from kfuzz.targets import load

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
            "Only this probe; repeatable. `order`, `accumulator`, `alignment`, "
            "`fused`, `operands`, `contraction`, `subnormals`, `store`, `intrinsics`.",
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

    from kfuzz.features.lab.probe import search
    from kfuzz.report import json_report
    from kfuzz.report.terminal import TerminalReport

    for name in only or ():
        settings.choose(name, search.NAMES, "--probe")
    load.limit_to(settings.duration(max_time))
    probing = search.Probing(
        targets, project.root, project.corpus,
        device=device, dtypes=dtype or (), probes=only or search.NAMES, terms=terms,
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
            made = search.document(
                probing.kernels, probing.device, interrupted=stop.is_set()
            )
            for kernel in made["kernels"]:
                kernel["findings"] = findings.get(kernel["kernel"], [])
            json_report.write(made, out)
        else:
            for line in search.reading_lines(
                probing.kernels, verbose=verbose, adopt=adopt
            ):
                print(line, file=out)
    code = outcome.code()
    if code is ExitCode.OK and not any(k.says_something for k in probing.kernels):
        return ExitCode.NOTHING_TO_RUN
    return code
