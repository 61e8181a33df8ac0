"""Cases of one kernel, judged in this process as a child would judge them."""

from collections.abc import Callable, Collection

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS


def spec(
    family: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    *,
    axes: tuple[str, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    plants: tuple[Plant, ...] = (),
    seed: int = 2,
) -> TensorSpec:
    names = axes or tuple(f"d{i}" for i in range(len(shape)))
    fill = Fill(family, seed)
    return TensorSpec(
        shape, names, dtype, strides, offset, fill=fill, plants=plants
    )  # fmt: skip


def pinned(
    values: object,
    axes: str,
    dtype: str = "",
    *,
    strides: tuple[int, ...] | None = None,
    below: str = "",
) -> TensorSpec:
    """Return a tensor of these very values: integers where they are indices."""
    held = dtype or ("int64" if below else "float32")
    x = torch.as_tensor(values, dtype=getattr(torch, held))
    data = x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    names = tuple(axes.split())
    return TensorSpec(tuple(x.shape), names, held, strides, values=data, below=below)


def bench_of(
    operator: Operator,
    function: Callable[..., object],
    *,
    classes: Collection[str] = CLASSES,
    backend: str = "cpu",
    sizes: str = "",
    **claims: object,
) -> Evaluator:
    """Return an evaluator of a function, bound under a name that no other has."""
    bound = kernel(operator, name=f"k{next(COUNTER)}", **claims)(function)  # type: ignore[arg-type]
    budget = SIZE_BUDGETS[sizes or backend.partition(":")[0]]
    return Evaluator(bound, setting_of(backend, budget, classes))


# Where nothing is interpreted, kernels that count their calls would be told apart.
_COUNTING = frozenset(CLASSES) - {"C-ORD-03"}


def judged(
    operator: Operator,
    function: Callable[..., object],
    case: Case,
    *,
    classes: Collection[str] = (),
    backend: str = "cpu",
    depth: Depth = Depth.FULL,
    **more: object,
) -> CaseReport:
    """Return the report of a case; see `bench_of` for the rest."""
    of = classes or (_COUNTING if backend == "cpu" else CLASSES)
    made = bench_of(operator, function, classes=of, backend=backend, **more)  # type: ignore[arg-type]
    return made.judge(case, depth)


def right(report: CaseReport) -> None:
    """Assert that a case passed, and was run."""
    assert report.failure is None, report.failure
    assert report.error is report.unsupported is report.refusal is None, report


COUNTER = iter(range(10_000))


def row_case(family: str, shape: tuple[int, ...], *args: str, **more: object) -> Case:
    """A case of an operator with `x` and `dim`."""
    return Case({"x": spec(family, shape, *args, **more)}, {"dim": -1})  # type: ignore[arg-type]


def x_case(family: str, shape: tuple[int, ...], *args: str, **more: object) -> Case:
    return Case({"x": spec(family, shape, *args, **more)})  # type: ignore[arg-type]
