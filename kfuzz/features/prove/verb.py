"""kfuzz prove: memory and race properties of Triton kernels, for all sizes."""

from collections.abc import Iterator
from typing import Annotated, Any

from kfuzz.cli import settings
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    CorpusOption,
    DeviceOption,
    FailOnOption,
    FormatOption,
    QuietOption,
    TargetsArgument,
    shared,
)
from kfuzz.cli.streams import ExitCode, print_examined
from kfuzz.core.event import KernelFinished
from kfuzz.engine.workers import zygotes
from kfuzz.targets import load


def prove(
    targets: TargetsArgument = None,
    max_time: Annotated[
        str | None, shared("max-time", "For each kernel. Default: 60s.")
    ] = None,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    fail_on: FailOnOption = "new",
    format: FormatOption = "text",
    quiet: QuietOption = False,
    verbose: Annotated[bool, shared("verbose", "The premises, too.")] = False,
) -> int:
    """Prove that Triton kernels stay in bounds, do not race and do not overflow.

    From Triton's IR and the launches that the wrapper makes, for all sizes at once:
    loads and stores in bounds, stores of programs apart, loads apart from other
    programs' stores, results stored whole, no 32-bit overflow. A
    counterexample is run; where it fails, it is a finding like any other. Needs the
    extra: pip install 'kfuzz[prove]'.

    Exit codes: 0 nothing is refuted (what is not proved is printed as open), 1 a
    counterexample fails, 2 usage, 3 internal error, 4 no kernel, 5 no solver, or the
    device is missing, 130 interrupted.
    """
    project = open_project(corpus)
    wanted = project.targets(targets)
    from kfuzz.features.prove.properties import required

    required()
    zygotes.expect(device)  # it imports torch while this process does

    from kfuzz.features.prove.observing import Task
    from kfuzz.features.prove.proving import SECONDS
    from kfuzz.features.prove.search import ProofRun
    from kfuzz.report import json_report
    from kfuzz.report.promises import proof_lines
    from kfuzz.report.text import one_line

    seconds = SECONDS
    if max_time is not None:
        seconds = settings.duration(max_time)
        load.limit_to(seconds)
    task = Task(tuple(wanted), project.root, seconds)
    run = ProofRun(task, project.corpus, device)

    def lines(event: KernelFinished) -> Iterator[str]:
        yield one_line(event.kernel)
        proved = event.proof and proof_lines(event.proof, premises=verbose)
        yield from (f"  {line}" for line in proved or ())

    def document(event: KernelFinished) -> dict[str, Any]:
        proved = event.proof and json_report.proof_document(event.proof)
        return {"kernel": event.kernel, **(proved or {})}

    code = print_examined(
        lambda stop: run.events(stop=stop),
        format,
        quiet=quiet,
        fail_on=fail_on,
        corpus=project.corpus_option,
        lines=lines,
        document=document,
    )
    if code is ExitCode.NOTHING_TO_RUN and run.proofs:
        return ExitCode.OK
    return code
