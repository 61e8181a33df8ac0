"""kfuzz probe: what a kernel's arithmetic is, against what it declares."""

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
from kfuzz.cli.streams import ExitCode, print_examined
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

    for name in only or ():
        settings.choose(name, search.NAMES, "--probe")
    load.limit_to(settings.duration(max_time))
    probing = search.Probing(
        targets, project.root, project.corpus,
        device=device, dtypes=dtype or (), probes=only or search.NAMES, terms=terms,
        max_time=settings.duration(max_time),
    )  # fmt: skip
    code = print_examined(
        lambda stop: probing.events(stop=stop),
        format,
        quiet=quiet,
        fail_on=fail_on,
        corpus=project.corpus_option,
        lines=lambda _: search.reading_lines(
            probing.kernels[-1], verbose=verbose, adopt=adopt
        ),
        document=lambda _: search.document(probing.kernels[-1]),
        more=lambda: {"device": probing.device},
    )
    if code is ExitCode.OK and not any(k.says_something for k in probing.kernels):
        return ExitCode.NOTHING_TO_RUN
    return code
