"""What features share: kernels looked at, bounds of plain references, operators."""

import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.gradients.operators import BACKWARD, gradients_of
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import NARROW, agree
from kfuzz.core import event
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BuildError, HarnessError, UsageError, suggestion
from kfuzz.core.verdict import Verdict
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS, in_float64
from kfuzz.numerics.shadow import shadowed
from kfuzz.report.files import write
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import utc_now
from kfuzz.targets.load import LoadedKernel

if TYPE_CHECKING:  # a monitored program imports no engine
    from kfuzz.engine.search.round import KernelSearch
    from kfuzz.engine.workers.zygotes import Backend

    Proof = Generator[event.Event, None, event.KernelProof | None]
    Look = Callable[[KernelSearch, Corpus], Proof]


def examined(
    load: "Callable[[Backend], Sequence[LoadedKernel]]",
    look: "Look",
    *,
    root: Path,
    corpus: Path,
    device: str,
    stop: threading.Event,
    expired: Callable[[], bool],
) -> Iterator[event.Event]:
    """Look at kernels one after the other, where no cases are drawn at random.

    Args:
        load: returns the kernels.
        look: looks at one, and returns what is proved of it.
        root: the project.
        corpus: folder of findings.
        device: as in `RunConfig`.
        stop: set from outside to end the run cleanly.
        expired: whether the time is over.

    Yields:
        Events, ending with one `RunFinished`.

    Raises:
        KfuzzError: before the first event, on targets or settings that cannot be
            obeyed; later, if a kernel cannot be run at all.
    """
    from kfuzz.engine.search.schedule import named_apart, outside_of
    from kfuzz.engine.workers.jobs import Stopped
    from kfuzz.engine.workers.zygotes import Backend

    began = time.monotonic()
    with closing(Backend(device)) as backend:
        loaded, held = load(backend), Corpus(corpus)
        held.require_writable()
        loaded = named_apart(loaded, held.homes, root)
        names = tuple(k.node_id for k in loaded)
        outside = outside_of(loaded)
        yield event.RunStarted(0, backend.name, names, utc_now(), outside=outside)
        for each in loaded:
            kernel = _examined_kernel(each, backend, root, expired)
            proof = None
            try:
                proof = yield from look(kernel, held)
            except Stopped:
                yield event.Notice(
                    kernel.node_id, "the time was over before it was done"
                )
            except BuildError as error:
                kernel.record.errors += 1
                yield event.Notice(kernel.node_id, f"given up: {error}")
            finally:
                kernel.runner.close()
            failed = {"K-LIV-01": event.ContractTally(Verdict.ERROR)}
            yield event.KernelFinished(
                kernel=kernel.node_id,
                operator=each.kernel.operator.name,
                cases=kernel.record.cases,
                cases_per_s=0.0,
                contracts=failed if kernel.record.errors else {},
                findings=tuple(kernel.findings.values()),
                paths=dict(kernel.paths),
                proof=proof,
            )
    yield event.RunFinished(time.monotonic() - began, stop.is_set(), 0, backend.name)


def _examined_kernel(
    loaded: LoadedKernel, backend: "Backend", root: Path, expired: Callable[[], bool]
) -> "KernelSearch":
    from kfuzz.engine.search.record import Record
    from kfuzz.engine.search.round import KernelSearch
    from kfuzz.engine.workers.runner import runner_of

    budget = backend.on.limits.sizes
    runner = runner_of(
        loaded, backend, root=root, expired=expired, budget=budget,
        quiet=lambda: kernel.quiet,
    )  # fmt: skip
    record = Record(frozenset(CLASSES), loaded.kernel.declaration.dtypes)
    # What is examined for all sizes answers for offsets of 32 bits.
    kernel = KernelSearch(loaded, runner, budget, record, large=True)
    return kernel


# What is accepted of the results of a reference in plain torch.


def reference_bounds(
    problem: Problem,
    oracle: Callable[..., Any],
    names: Sequence[str],
    *,
    name: str,
    formats: Sequence[str],
    tf32: frozenset[str] = frozenset(),
    narrowed: Callable[..., Any] | None = None,
    computed: Callable[..., Any],
    arguments: Sequence[str],
    dtypes: Sequence[torch.dtype] = (),
) -> dict[str, Acceptance]:
    """Return what is accepted of each result of a reference, by its shadow.

    What is NaN where all arguments are numbers is undecided: the reference is not
    defined there, 0 log 0 for one.

    Args:
        problem: the inputs of one item.
        oracle: the reference; its integers have their own data types.
        names: of its results.
        name: its own, for messages.
        formats: in which each result is stored.
        tf32: as of `shadowed`.
        narrowed: likewise.
        computed: the reference for integers as int64.
        arguments: data types of its arguments.
        dtypes: of the results, as of `open_to_wider`.
    """
    bounds = {
        f: shadowed(
            oracle, replace(problem, output=FORMATS[f]), name=name, tf32=tf32,
            narrowed=narrowed,
        )
        for f in dict.fromkeys(formats)
    }  # fmt: skip
    found = [bounds[f][i] for i, f in enumerate(formats)]
    floats = (x for x in problem.tensors.values() if x.is_floating_point())
    if all(bool(torch.isfinite(x).all()) for x in floats):
        found = [replace(a, undecided=a.undecided | a.reference.isnan()) for a in found]
    accepted = dict(zip(names, found, strict=True))
    if NARROW.isdisjoint(arguments):
        return accepted
    return open_to_wider(accepted, computed, problem, dtypes)


def in_own_types(
    tensors: Sequence[Tensor], dtypes: Sequence[str], main: str = ""
) -> list[Tensor]:
    """Return what an oracle is given in the data types of a reference's arguments.

    Args:
        tensors: in float64 and int64.
        dtypes: of the arguments; "" for the main one.
        main: the main floating one; "" for floating numbers as they are.
    """
    made = []
    for x, name in zip(tensors, dtypes, strict=False):
        if main and x.is_floating_point():
            x = x.to(getattr(torch, name or main))
        elif name and DTYPES[name].kind != "float":
            x = x.to(getattr(torch, name))
        made.append(x)
    return made


def open_to_wider(
    accepted: Mapping[str, Acceptance],
    oracle: Callable[..., Any],
    problem: Problem,
    dtypes: Sequence[torch.dtype | None] = (),
) -> dict[str, Acceptance]:
    """Return acceptances undecided where wider integers come to something else.

    For an oracle that computed in its arguments' own integers, of fewer than 64 bits: a
    kernel that computes with wider ones is right too. What differs by wrapping alone
    stays decided.

    Args:
        accepted: what is accepted of each result of one member.
        oracle: takes integers as int64, floats as float64.
        problem: the inputs, integers as int64, and scalars.
        dtypes: of the results as a kernel stores them; those of `accepted` by default.
    """
    given = [x[0] for x in problem.tensors.values()]
    try:
        wide = in_float64(oracle, given, dict(problem.scalars), name="the reference")
    except Exception:  # it is not defined for these
        return dict(accepted)
    if len(wide) != len(accepted):
        return dict(accepted)
    made = {}
    stored = dtypes or [None] * len(wide)
    for (name, a), y, dtype in zip(accepted.items(), wide, stored, strict=True):
        x = a.reference if a.exact is None else a.exact
        if x.shape[1:] == y.shape:
            kind = dtype or a.output.dtype
            own = x if a.exact is None else x.to(kind)
            a = replace(a, undecided=a.undecided | ~agree(own, y[None]))
        made[name] = a
    return made


# Operators by name, files by path.


def operator_named(name: str, where: str) -> Operator:
    """Return an operator of kfuzz's by its name, "softmax.backward" for gradients.

    Args:
        name: the name.
        where: what asks, for the message.

    Raises:
        UsageError: if there is none.
    """
    from kfuzz.contracts.operators import OPERATORS

    stem = name.removesuffix(BACKWARD)
    if stem not in OPERATORS:
        fix = suggestion(stem, OPERATORS)
        raise UsageError(f"no operator {name!r}", where=where, fix=fix)
    return OPERATORS[stem] if stem == name else gradients_of(OPERATORS[stem])[""]


def named_in(name: str) -> list[Operator]:
    """Return the operators that a name contains, the longest first: of rmsnorm_fn."""
    from kfuzz.contracts.operators import OPERATORS

    words = plain_name(name).split("_")
    ends = range(1, len(words) + 1)
    runs = {"".join(words[i:j]) for j in ends for i in range(j)}
    named = [o for o in OPERATORS.values() if o.name.replace("_", "") in runs]
    return sorted(named, key=lambda operator: -len(operator.name))


def plain_name(name: str) -> str:
    """Return the name of a function as Python likes it, "silu_mul" of SiLUMul.apply."""
    name = name.removesuffix(".apply").rpartition("::")[2]
    name = name.removesuffix("Function")
    parts = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\W"
    return re.sub(parts, "_", name).strip("_").lower() or "seen"


def write_or_raise(path: Path, text: str) -> None:
    """Write a file as `write` does.

    Raises:
        HarnessError: naming the file, if it is refused.
    """
    try:
        write(path, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise HarnessError(what, where=str(path)) from None
