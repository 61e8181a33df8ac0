import importlib
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.binding import REGISTRY
from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Scalar, TensorSpec
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.evaluation.evaluator import Evaluator, passes_functional, setting_of
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.kernel_draws import drawn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BUDGET = SIZE_BUDGETS["cuda" if CUDA else "interpret"]

CONFORMING = [w for w in everywhere().values() if w.conforming]
# Those that end or stall their process are judged where processes are tested.
FATAL = [w for w in everywhere().values() if w.contract == "K-LIV-01"]
NATIVE = [w for w in everywhere().values() if w.backends == ("cpu",)]
FATAL += NATIVE
BACKEND = "cuda" if CUDA else "interpret"
VIOLATING = [
    w
    for w in everywhere().values()
    if not w.conforming and w not in FATAL and BACKEND in w.backends
]
# Those that are no pairs of a correct kernel and its fault have tables of their own.
OWN_TABLES = frozenset(
    {
        "classes.cheats", "classes.impostors", "backward.faults",
        "backward.gradients", "backward.norms", "incidents",
    }
)  # fmt: skip
INF, NAN = float("inf"), float("nan")


def named(witnesses: list[Witness], *, every: int = 1) -> object:
    """Parametrise by witnesses, all but one of so many marked slow."""
    chosen = [
        w if i % every == 0 else pytest.param(w, marks=pytest.mark.slow)
        for i, w in enumerate(witnesses)
    ]
    return pytest.mark.parametrize("witness", chosen, ids=lambda w: w.kernel)


def pinned(
    values: object,
    axes: str,
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
) -> TensorSpec:
    x = torch.tensor(values, dtype=getattr(torch, dtype))
    raw = x.reshape(-1).view(torch.uint8).numpy().tobytes()
    return TensorSpec(tuple(x.shape), tuple(axes.split()), dtype, strides, values=raw)


def selecting(values: object, axes: str, below: str) -> TensorSpec:
    x = torch.tensor(values)
    raw = x.reshape(-1).view(torch.uint8).numpy().tobytes()
    names = tuple(axes.split())
    return TensorSpec(tuple(x.shape), names, "int64", values=raw, below=below)


def one_hot(n: int, *at: tuple[int, float]) -> list[float]:
    values = [0.0] * n
    for index, value in at:
        values[index] = value
    return values


def row(values: list[float], dtype: str = "float32") -> dict[str, TensorSpec]:
    return {"x": pinned([values], "d0 d1", dtype)}


def product(
    a: list[float], b: list[float], dtype: str = "float32"
) -> dict[str, TensorSpec]:
    columns = [[v] for v in b]
    return {"a": pinned([a], "M K", dtype), "b": pinned(columns, "K N", dtype)}


def normalised(x: list[float], weight: list[float]) -> dict[str, TensorSpec]:
    bias = [0.0] * len(x)
    return {
        "x": pinned([x], "d0 N"),
        "weight": pinned(weight, "N"),
        "bias": pinned(bias, "N"),
    }


# What a person would hand to the author of each faulty kernel.
MINIMAL: dict[str, dict[str, TensorSpec]] = {
    "softmax_tail_zero": row([0.0, 0.0, 0.0]),
    "softmax_no_max": row([100.0]),
    "sum_half_accumulator": row(
        one_hot(257, (0, 2048.0), (1, 1.0), (256, 1.0)), "float16"
    ),
    "sum_drop_tail": row(one_hot(257, (256, 1.0))),
    "sum_rows_unwritten": row([0.0]),
    "sum_random_order": row([1e8, 1.0, -1e8, 3.0, 1e7, 0.5, -1e7, 7.0]),
    "amax_stale_partials": row([0.0]),
    "relu_static_buffer": {"x": pinned([0.0], "d0")},
    "relu_memo_by_pointer": {"x": pinned([1.0], "d0")},
    "amax_zero_identity": row([-1.0, -1.0, -1.0]),
    "amax_nan_swallowed": row([NAN]),
    "layer_norm_padded_variance": normalised([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
    "layer_norm_one_pass": normalised([4096.0, 4097.0], [1.0, 0.0]),
    "matmul_half_accumulator": product(
        one_hot(17, (0, 2048.0), (1, 1.0), (16, 1.0)),
        one_hot(17, (0, 1.0), (1, 1.0), (16, 1.0)),
        "float16",
    ),
    "matmul_drop_tail": product([1.0], [1.0]),
    "relu_flushes": {"x": pinned([1e-40], "d0")},
    "log_by_exponent_bits": {"x": pinned([1e-40], "d0")},
    "mul_flushes_arguments_only": {
        "a": pinned([2.0**-64], "d0"),
        "b": pinned([2.0**-64], "d0"),
    },
    "softmax_unmasked_config": row([0.0]),
    "leaky_relu_unrestored": row([-1.0]),
    "relu_clears_the_next_buffer": row([-1.0]),
    "sum_split_by_rows": {
        # In float32 each small term is lost; the scan keeps them, and rounds up.
        "x": pinned([[0.0] * 3, [1.0, 0.75 * 2**-24, 0.75 * 2**-24]], "d0 d1")
    },
    "linear_relu_saturates": {
        "x": pinned([[0.0]], "d0 K"),
        "weight": pinned([[0.0]], "N K"),
        "bias": pinned([100.0], "N"),
    },
    **{
        name: {"x": pinned([0.0], "d0")}
        for name in (
            "relu_tail_store_unmasked",
            "relu_reads_one_past",
            "relu_reads_one_before",
        )
    },
    "sum_ignores_column_stride": {"x": pinned([0.0, 1.0], "d0", strides=(2,))},
    "amax_last_chunk_wins": row(one_hot(17, (0, 1.0))),
    "relu_offsets_overflow": {"x": pinned([[0.0]] * 3, "d0 d1", strides=(1 << 30, 1))},
    "embedding_wraps_index": {
        "weight": pinned([[0.0]], "V D"),
        "indices": selecting([1], "d0", "V"),
    },
    "cross_entropy_padded_label": {
        "logits": pinned([[0.0, 0.0, 0.0]], "N C"),
        "target": selecting([3], "N", "C"),
    },
    "gelu_by_tanh": {"x": pinned([2.0], "d0")},
    "rms_norm_eps_outside": {
        "x": pinned([0.125], "N"),
        "weight": pinned([1.0], "N"),
    },
    "argmax_last_of_equals": row([0.0, 0.0]),
    "relu_ignores_strides": {
        "x": pinned([[0.0, 1.0], [0.0, 0.0]], "d0 d1", strides=(1, 2))
    },
    "relu_last_tile_unwritten": {"x": pinned([0.0], "d0")},
    "relu_overwrites_input": {"x": pinned([-1.0], "d0")},
    "relu_wrong_dtype": {"x": pinned([0.0], "d0", "float16")},
    "relu_one_shape": {"x": pinned([1.0], "d0")},
    "dropout_unscaled": {"x": pinned([1.0], "d0")},
}

# Of these the scalars that are not the usual ones.
SCALARS: dict[str, dict[str, Scalar]] = {
    "dropout_unscaled": {"p": 0.5},
}


def judged(witness: Witness, case: Case, depth: Depth = Depth.FULL) -> CaseReport:
    setting = setting_of(DEVICE, BUDGET, select_classes((), ()))
    return Evaluator(witness.load(), setting).judge(case, depth)


def minimal_case(witness: Witness) -> Case:
    operator = witness.load().operator
    scalars = {name: p.default for name, p in operator.scalars.items()}
    scalars |= SCALARS.get(witness.kernel, {})
    return Case(MINIMAL[witness.kernel], scalars)


@named(list(everywhere().values()), every=3)
def test_every_witness_passes_the_plain_functional_test(witness: Witness) -> None:
    device = "cpu" if witness in NATIVE else DEVICE
    assert passes_functional(witness, device=device)


@pytest.mark.slow
@named(VIOLATING, every=2)
def test_a_planted_fault_is_charged_to_its_class(witness: Witness) -> None:
    report = judged(witness, minimal_case(witness))
    assert report.unsupported is None
    assert report.error is None
    assert report.failure is not None
    assert report.failure.contract == witness.contract, report.failure.message
    assert report.verdicts[witness.contract] is Verdict.VIOLATES


@pytest.mark.slow
@named(VIOLATING, every=3)
def test_the_correct_twin_passes_where_the_fault_shows(witness: Witness) -> None:
    case = minimal_case(witness)
    operator = witness.load().operator.name
    for twin in (everywhere()[f"triton_{operator}"], everywhere()[f"torch_{operator}"]):
        report = judged(twin, case)
        assert report.failure is None, report.failure
        assert report.refusal is None
        assert Verdict.CONFORMS in report.verdicts.values()


@named(VIOLATING)
def test_minimal_cases_are_as_small_as_the_table_says(witness: Witness) -> None:
    tensors = MINIMAL[witness.kernel].values()
    nonzero = sum(
        int((torch.frombuffer(bytearray(s.values or b""), dtype=word(s)) != 0).sum())
        for s in tensors
    )
    assert sum(s.numel for s in tensors) <= witness.max_elements
    assert nonzero <= witness.max_nonzero


def word(spec: TensorSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


# Torch warns of variances of one element.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:var")
@named(CONFORMING, every=20)
def test_conforming_witnesses_conform_over_layouts_and_families(
    witness: Witness,
) -> None:
    decided = 0
    # Elements that share memory cannot be overwritten.
    inplace = witness.load().declaration.inplace
    made = [
        case
        for case in drawn(witness.load(), 25, "interpret")
        if not any(0 in (case.tensors[n].strides or (1,)) for n in inplace)
    ]
    assert made
    for case in made:
        report = judged(witness, case, Depth.SEARCH)
        assert report.failure is None, (report.failure, case)
        assert report.refusal is None, case
        assert report.error is None
        decided += Verdict.CONFORMS in report.verdicts.values()
    assert decided >= len(made) * 0.9


def test_every_bound_witness_is_listed() -> None:
    folder = Path(__file__).parents[2] / "contracts" / "witnesses"
    bound = set()
    for path in folder.rglob("*.py"):
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        if name in OWN_TABLES or name.startswith(("gpu", "planted")):
            continue
        made = importlib.import_module(f"kfuzz.contracts.witnesses.{name}")
        bound |= {b.name for b in REGISTRY.get(made.__name__, ())}
    assert bound == set(everywhere())


def test_the_fatal_ones_are_fatal_where_no_power_of_two_lies() -> None:
    from kfuzz.contracts.witnesses.relu import unlucky

    fatal = [w for w in FATAL if w not in NATIVE and "interpret" in w.backends]
    assert [w.max_elements for w in fatal] == [3, 3]
    assert unlucky(torch.zeros(3))
    assert not any(unlucky(torch.zeros(2**p)) for p in range(13))
