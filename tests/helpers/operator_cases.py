"""Cases of each operator over all value families, with torch's own kernels."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import specials
from kfuzz.core.recipe import Case, Fill, Plant, Scalar, TensorSpec
from kfuzz.core.value_families import FAMILIES
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.compare import Comparison, compare
from tests.helpers import correct_algorithms as correct

DTYPES: Final = ("float32", "float16", "bfloat16")
CPU: Final = torch.device("cpu")
OPERATORS: Final[dict[str, Operator]] = {
    "sum": ops.sum,
    "softmax": ops.softmax,
    "layer_norm": ops.layer_norm,
    "matmul": ops.matmul,
    "amax": ops.amax,
    "relu": ops.relu,
}
Algorithm = Callable[..., Tensor]


def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def sorted_last(x: Tensor, *, dim: int) -> Tensor:
    """A maximum by sorting; NaN sorts last."""
    return x.sort(dim).values.select(dim, -1)


def clamped(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def selected(x: Tensor) -> Tensor:
    return torch.where(x <= 0, torch.zeros((), dtype=x.dtype), x)


TORCH: Final[dict[str, Algorithm]] = {
    "sum": torch.sum,
    "softmax": torch.softmax,
    "layer_norm": torch_layer_norm,
    "matmul": torch.matmul,
    "amax": torch.amax,
    "relu": torch.relu,
}
CORRECT: Final[dict[str, dict[str, Algorithm]]] = {
    "sum": correct.SUMS,
    "softmax": correct.SOFTMAXES,
    "layer_norm": correct.LAYER_NORMS,
    "matmul": correct.MATMULS,
    "amax": {
        "sorted": sorted_last,
        "max": lambda x, *, dim: x.max(dim).values,
        "widened": lambda x, *, dim: x.float().amax(dim).to(x.dtype),
    },
    "relu": {"clamped": clamped, "selected": selected},
}

# Shapes of the first tensor (and for matmul M, K, N) with the scalars.
ROWS: Final[tuple[tuple[tuple[int, ...], dict[str, Scalar]], ...]] = (
    ((2, 1), {"dim": -1}),
    ((3, 33), {"dim": 1}),
    ((65, 2), {"dim": 0}),
    ((2, 17, 3), {"dim": -2}),
    ((131,), {"dim": -1}),
)
SHAPES: Final[dict[str, tuple[tuple[tuple[int, ...], dict[str, Scalar]], ...]]] = {
    "sum": (*ROWS, ((2, 0), {"dim": -1}), ((0, 3), {"dim": -1})),
    "softmax": (*ROWS, ((2, 0), {"dim": -1}), ((0, 3), {"dim": -1})),
    "amax": ROWS,
    "relu": (((3, 33), {}), ((), {}), ((0,), {}), ((2, 1, 5), {})),
    "layer_norm": (
        ((2, 1), {"eps": 1e-5}),
        ((3, 33), {"eps": 1e-12}),
        ((2, 2, 66), {"eps": 1e-5}),
        ((0, 3), {"eps": 0.1}),
    ),
    "matmul": (
        ((1, 1, 1), {}),
        ((3, 33, 2), {}),
        ((2, 66, 2), {}),
        ((2, 0, 2), {}),
    ),
}


def case_of(
    operator: str,
    dtype: str,
    family: str,
    shape: tuple[int, ...],
    scalars: dict[str, Scalar],
    *,
    seed: int = 1,
    other: str = "randn",
    plants: tuple[Plant, ...] = (),
) -> Case:
    """Return a case whose first tensor has the family, the others `other`."""

    def spec(
        axes: tuple[str, ...], sizes: tuple[int, ...], name: str, salt: int
    ) -> TensorSpec:
        axis = -1
        if axes[-1:] == ("N",) and axes[:1] == ("K",):
            axis = -2
        elif "dim" in scalars:
            dim = int(scalars["dim"])
            axis = dim if dim < 0 else dim - len(sizes)
        return TensorSpec(sizes, axes, dtype, fill=Fill(name, seed * 101 + salt, axis))

    if operator == "matmul":
        m, k, n = shape
        tensors = {
            "a": spec(("M", "K"), (m, k), family, 0),
            "b": spec(("K", "N"), (k, n), other, 1),
        }
    else:
        axes = tuple(f"d{i}" for i in range(len(shape)))
        if operator == "layer_norm":
            axes = (*axes[:-1], "N")
        tensors = {"x": spec(axes, shape, family, 0)}
        if operator == "layer_norm":
            last = shape[-1:]
            tensors["weight"] = spec(("N",), last, other, 1)
            tensors["bias"] = spec(("N",), last, other, 2)
    first = next(iter(tensors))
    tensors[first] = replace(tensors[first], plants=plants)
    return Case(tensors, dict(scalars))


def cases_of(operator: str, dtype: str) -> Iterator[Case]:
    """Yield every family at every other shape, then every special value planted."""
    for i, (shape, scalars) in enumerate(SHAPES[operator]):
        for j, family in enumerate(f for f in FAMILIES if f != "transpose_of"):
            if (i + j) % 2:
                continue
            other = ("randn", "exact_int", "minnormal", "expspread")[(i // 2 + j) % 4]
            yield case_of(
                operator, dtype, family, shape, scalars, seed=i + j, other=other
            )
    shape, scalars = SHAPES[operator][1]
    if 0 in shape or not shape:
        return
    for family in ("randn", "exact_int"):
        for j, bits in enumerate(specials(dtype, finite=False)):
            sizes = shape[:2]
            at = tuple((j * 7 + 3) % n for n in sizes)
            yield case_of(
                operator, dtype, family, shape, scalars, seed=j, other="signed_zeros"
                if operator == "matmul" and j % 3 == 0 else "randn",
                plants=(Plant(at, bits),),
            )  # fmt: skip


@cache
def posed(
    operator: str, dtype: str, claims: tuple[tuple[str, str], ...] = ()
) -> tuple[tuple[Case, dict[str, Tensor], Problem, Acceptance], ...]:
    """Return the cases with their values, problems and acceptances."""
    made = OPERATORS[operator]
    declaration = replace(made.defaults, **dict(claims))  # type: ignore[arg-type]
    found = []
    for case in cases_of(operator, dtype):
        found.append((case, *pose_case(made, case, declaration)))
    return tuple(found)


def pose_case(
    operator: Operator, case: Case, declaration: Declaration | None = None
) -> tuple[dict[str, Tensor], Problem, Acceptance]:
    """Return values, problem and acceptance of one case."""
    values = {name: logical_values(case, name, CPU) for name in case.tensors}
    problem = pose(operator, case, values, declaration or operator.defaults)
    return values, problem, accept(operator, problem)["y"]


def compared(
    algorithm: Algorithm,
    case: Case,
    values: dict[str, Tensor],
    problem: Problem,
    acceptance: Acceptance,
) -> Comparison:
    """Run an algorithm and compare its result."""
    y = algorithm(*values.values(), **problem.scalars)
    return compare(y.unsqueeze(0), acceptance)


def describe(case: Case) -> str:
    """Return a case as one line, for assertion messages."""
    fills = [s.fill.family for s in case.tensors.values() if s.fill]
    shapes = [s.shape for s in case.tensors.values()]
    plants = [s.plants for s in case.tensors.values() if s.plants]
    return f"{fills} {shapes} {dict(case.scalars)} {plants}"
