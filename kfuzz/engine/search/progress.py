"""What a campaign tells of its kernels: how far they are, and what they came to."""

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from kfuzz.core.errors import KfuzzError, class_name, message_of, trace_text
from kfuzz.core.event import KernelFinished, Notice, Progress
from kfuzz.core.proof import KernelProof
from kfuzz.engine.search.round import KernelSearch
from kfuzz.targets.load import LoadedKernel


def progress_of(
    kernels: Sequence[KernelSearch],
    kernel: KernelSearch,
    *,
    elapsed_s: float,
    findings: int,
) -> Progress:
    """Return the counters after a time slice.

    Args:
        kernels: all of the run.
        kernel: whose it was.
        elapsed_s: seconds since the start.
        findings: so far, of those that end a run.
    """
    return Progress(
        kernel=kernel.node_id,
        elapsed_s=elapsed_s,
        cases=sum(k.record.cases for k in kernels),
        worst_ratio=max(k.record.worst for k in kernels),
        findings=findings,
        kernels_done=sum(k.done for k in kernels),
        strata=sum(len(k.ledger.visits) for k in kernels),
    )


def outside_of(kernels: Sequence[LoadedKernel]) -> dict[str, str]:
    """Return what `--target` takes for the kernels outside the project, by node id."""
    return {k.node_id: k.outside for k in kernels if k.outside}


def outside_notices(outside: Mapping[str, str]) -> Iterator[Notice]:
    """Yield what a person should know of kernels outside the project."""
    if outside:
        first, *others = outside
        shown = f"{first} and {len(others)} more" if others else first
        verb = "lie" if others else "lies"
        text = f"{shown} {verb} outside the project: findings do not say where, so that"
        yield Notice("", f"{text} replaying one takes the --target printed with it")


def finished_of(
    kernel: KernelSearch, classes: Collection[str], *, ending: str,
    proof: KernelProof | None = None,
) -> KernelFinished:  # fmt: skip
    """Return what a kernel came to.

    Args:
        kernel: the kernel.
        classes: ids of the contract classes in force.
        ending: why it had no case, if it had none.
        proof: what is proved of it.
    """
    record, findings = kernel.record, list(kernel.findings.values())
    return KernelFinished(
        kernel=kernel.node_id,
        operator=kernel.loaded.kernel.operator.name,
        cases=record.cases,
        cases_per_s=record.cases / kernel.seconds if kernel.seconds else 0.0,
        contracts=record.tallies(findings, frozenset(classes)),
        refusals=record.refusals(),
        findings=tuple(findings),
        paths=dict(kernel.paths),
        worst_ratio=record.worst,
        notes=record.notes(),
        screened=record.prefiltered,
        bursts=record.batches,
        strata=len(kernel.ledger.visits),
        regions=kernel.ledger.regions(),
        fenced=kernel.runner.fenced,
        needs_gpu=record.needs_gpu,
        tried=record.tried(),
        uncompared=record.uncompared(findings, ending),
        compared=record.compared(),
        proof=proof,
    )


def trace_of(error: Exception) -> str:
    """Return the traceback of what kfuzz did not expect; "" of an error that it made.

    One that it made says what is wrong, and where, by itself.
    """
    if isinstance(error, KfuzzError):
        return ""
    return trace_text(error)


def line_of(error: Exception) -> str:
    """Return an error in one line, with its place if it is kfuzz's own fault."""
    if isinstance(error, KfuzzError):
        return str(error)
    trace = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else ""
    return f"an error of kfuzz's own{place}: {class_name(error)}: {message_of(error)}"
