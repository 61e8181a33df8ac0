"""Error models of the operators with indices: what they admit and what not."""

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.recipe import Case, Fill, Scalar, TensorSpec
from kfuzz.core.value_families import FAMILIES
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.compare import Comparison, Outcome, compare
from tests.helpers.correct_algorithms import F32, Array, rows_of, serial, store
from tests.helpers.correct_reductions import PARTS

CPU = torch.device("cpu")
DTYPES = ("float32", "float16", "bfloat16")
NAN, INF = math.nan, math.inf


def judge(
    name: str,
    tensors: dict[str, Tensor],
    scalars: dict[str, Scalar] | None = None,
    **claims: str,
) -> tuple[Problem, Acceptance]:
    """Return problem and acceptance for explicit tensors."""
    operator = ops.OPERATORS[name]
    specs = {}
    for key, x in tensors.items():
        parameter = operator.tensors[key]
        axes = parameter.names or tuple(f"d{i}" for i in range(x.dim()))
        dtype = str(x.dtype).removeprefix("torch.")
        below = getattr(parameter, "below", "")
        specs[key] = TensorSpec(tuple(x.shape), axes, dtype, values=b"", below=below)
    given = {n: p.default for n, p in operator.scalars.items()} | (scalars or {})
    declaration = operator.defaults.declare("test", **claims)
    problem = pose(operator, Case(specs, given), tensors, declaration)
    return problem, accept(operator, problem)["y"]


def missed(y: Tensor, acceptance: Acceptance) -> Comparison:
    return compare(y.unsqueeze(0), acceptance)


# --- copies -----------------------------------------------------------------


def copied(name: str, data: Tensor, index: Tensor) -> dict[str, Tensor]:
    keys = ("weight", "indices") if name == "embedding" else ("x", "index")
    return dict(zip(keys, (data, index), strict=True))


def torch_copy(name: str, data: Tensor, index: Tensor) -> Tensor:
    if name == "embedding":
        return torch.nn.functional.embedding(index, data)
    return torch.gather(data, -1, index)


@pytest.mark.parametrize("name", ["embedding", "gather"])
@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
def test_copies_are_exact_on_every_family(name: str, dtype: str) -> None:
    for seed, family in enumerate(f for f in FAMILIES if f != "transpose_of"):
        spec = TensorSpec((5, 7), ("V", "D"), dtype, fill=Fill(family, seed))
        data = logical_values(Case({"x": spec}), "x", CPU)
        index = torch.tensor([[4, 0, 0], [1, 2, 3], [0, 1, 2], [3, 3, 3], [4, 4, 1]])
        y = torch_copy(name, data, index)
        _, acceptance = judge(name, copied(name, data, index))
        assert not missed(y, acceptance).missed.any(), family
        at = (0,) * y.dim()
        for wrong in (NAN, INF, float(y[at]) + 1):
            other = y.clone()
            other[at] = wrong
            same = torch.equal(other[at], y[at]) or bool(
                y[at].isnan() & math.isnan(wrong)
            )
            assert bool(missed(other, acceptance).missed[(0, *at)]) is not same


@pytest.mark.parametrize("name", ["embedding", "gather"])
def test_a_copied_zero_keeps_its_sign_and_a_nan_is_any(name: str) -> None:
    data = torch.tensor([[0.0, -0.0, NAN]])
    index = torch.tensor([0]) if name == "embedding" else torch.tensor([[0, 1, 2]])
    _, acceptance = judge(name, copied(name, data, index))
    assert not missed(data, acceptance).missed.any()
    assert not missed(torch.tensor([[0.0, -0.0, -NAN]]), acceptance).missed.any()
    made = missed(torch.tensor([[-0.0, 0.0, NAN]]), acceptance)
    assert made.missed[0, 0].tolist() == [True, True, False]
    # Flushing makes zeros of subnormals, it does not turn signs.
    _, flushing = judge(name, copied(name, data, index), subnormals="flush")
    assert missed(torch.tensor([[-0.0, 0.0, NAN]]), flushing).missed.sum() == 2


@pytest.mark.parametrize("name", ["embedding", "gather"])
def test_declared_policies_for_indices_out_of_bounds(name: str) -> None:
    data = torch.tensor([[1.0, 2.0, 3.0]] * 3) * torch.tensor([[1.0], [10.0], [100.0]])
    if name == "embedding":
        index = torch.tensor([-1, 3, 1, 2**62])
        clamped = data[torch.tensor([0, 2, 1, 2])]
        zeroed = data[1] * torch.tensor([[0.0], [0.0], [1.0], [0.0]])
        wrapped = data[torch.tensor([2, 0, 1, 2**62 % 3])]
    else:
        index = torch.tensor([[-1, 3, 1]] * 3)
        clamped = data[:, [0, 2, 1]]
        zeroed = data * torch.tensor([0.0, 0.0, 1.0]) / data * data[:, 1:2]
        wrapped = data[:, [2, 0, 1]]
    for policy, admitted, refused in (
        ("clamp", clamped, zeroed), ("zero", zeroed, clamped),
    ):  # fmt: skip
        _, acceptance = judge(name, copied(name, data, index), out_of_bounds=policy)
        assert not missed(admitted, acceptance).missed.any()
        assert missed(refused, acceptance).missed.any()
        assert missed(wrapped, acceptance).missed.any()


def test_embedding_takes_indices_of_every_rank() -> None:
    weight = torch.randn(4, 3)
    for index in (torch.tensor(2), torch.tensor([1, 3]), torch.zeros(2, 0, 3).long()):
        _, acceptance = judge("embedding", {"weight": weight, "indices": index})
        assert acceptance.shape == (*index.shape, 3)
        assert not missed(weight[index], acceptance).missed.any()


# --- cross-entropy ----------------------------------------------------------

# Shapes with their scalars; the last rows of some are ignored.
SHAPES: tuple[tuple[int, int, dict[str, Scalar]], ...] = (
    (1, 1, {}),
    (4, 33, {}),
    (3, 130, {"label_smoothing": 0.1}),
    (17, 5, {"label_smoothing": 0.5, "ignore_index": 0}),
    (2, 1025, {"ignore_index": -1}),
)


def cross_entropies(dtype: str) -> Iterator[tuple[str, dict[str, Tensor], dict]]:
    """Yield every family at every other shape."""
    for i, (n, c, scalars) in enumerate(SHAPES):
        for j, family in enumerate(f for f in FAMILIES if f != "transpose_of"):
            if (i + j) % 2:
                continue
            logits = TensorSpec((n, c), ("N", "C"), dtype, fill=Fill(family, i + j))
            fill = Fill(("index_uniform", "index_edges", "index_last")[j % 3], j)
            target = TensorSpec((n,), ("N",), "int64", fill=fill, below="C")
            case = Case({"logits": logits, "target": target})
            values = {name: logical_values(case, name, CPU) for name in case.tensors}
            if j % 4 == 0 and n > 1:
                values["target"][-1] = int(scalars.get("ignore_index", -100))
            full = {"ignore_index": -100, "label_smoothing": 0.0} | scalars
            yield f"{family} {n}x{c} {scalars}", values, full


@cache
def posed(dtype: str) -> list[tuple[str, dict, dict, Acceptance]]:
    found = []
    for label, values, scalars in cross_entropies(dtype):
        acceptance = judge("cross_entropy", values, scalars)[1]
        found.append((label, values, scalars, acceptance))
    return found


LogSum = Callable[[F32], tuple[Array, Array]]
# Maxima and logarithms of sums, in float32.
LOG_SUMS = {name: PARTS[name] for name in ("natural", "base_two", "online")}


def algorithm(log_sum: LogSum, *, cancels: bool = False) -> Callable[..., Tensor]:
    """Make a loss in float32 out of the maximum and log sum of rows."""

    def call(
        logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float
    ) -> Tensor:
        kept = (target != ignore_index).numpy()
        with np.errstate(all="ignore"):
            x = rows_of(logits, -1)[kept]
            t = target.numpy()[kept]
            s = np.float32(label_smoothing)
            top, log_total = (part[:, 0] for part in log_sum(x))
            picked = x[np.arange(len(t)), t]
            loss = log_total - (picked - top)
            if cancels:
                loss = (top + log_total) - picked
            smooth = log_total - serial(x - top[:, None]) / np.float32(x.shape[1])
            if cancels:
                smooth = (top + log_total) - serial(x) / np.float32(x.shape[1])
            if label_smoothing:
                loss = (np.float32(1) - s) * loss + s * smooth
            total = serial(loss[None])[0] / np.float32(len(t))
        return store(np.asarray(total), logits.dtype).reshape(())

    return call


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_correct_losses_are_admitted_on_every_family(dtype: str) -> None:
    decided = 0
    for label, values, scalars, acceptance in posed(dtype):
        for name, log_sum in LOG_SUMS.items():
            y = algorithm(log_sum)(**values, **scalars)
            made = missed(y, acceptance)
            assert not made.missed.any(), f"{name}: {label}"
            decided += int((made.outcomes == Outcome.OK).sum())
    assert decided > 200


def impostor(
    values: dict[str, Tensor], scalars: dict[str, Scalar], y: float | Tensor
) -> bool:
    """Whether a result is refused."""
    acceptance = judge("cross_entropy", values, scalars)[1]
    stored = torch.as_tensor(y).to(values["logits"].dtype)
    return bool(missed(stored, acceptance).missed.any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_losses_are_refused(dtype: str) -> None:
    torch.manual_seed(5)
    logits = torch.randn(6, 40).to(getattr(torch, dtype))
    logits[:, 39] = 3.0
    target = torch.tensor([0, 39, 3, -100, 7, 8])
    values = {"logits": logits, "target": target}
    log_p = torch.log_softmax(logits.double(), -1)
    kept = target != -100
    losses = -log_p[kept].gather(-1, target[kept].unsqueeze(-1)).squeeze(-1)
    smooth = -log_p[kept].mean(-1)
    tail = torch.logsumexp(logits[kept, :39].double(), -1)
    shorter = tail - logits[kept].double().gather(-1, target[kept, None])[:, 0]
    for wrong in (0.0, NAN, losses.sum(), losses.sum() / 6, losses[1:].mean()):
        assert impostor(values, {}, wrong)
    assert not impostor(values, {}, losses.mean())
    assert impostor(values, {}, shorter.mean())
    assert impostor(values, {}, 0.9 * losses.mean() + 0.1 * smooth.mean())
    half = {"label_smoothing": 0.5}
    assert not impostor(values, half, 0.5 * losses.mean() + 0.5 * smooth.mean())
    assert impostor(values, half, losses.mean())
    assert impostor(values, half, 0.5 * losses.mean() + 0.5 * smooth.mean() * 40 / 39)


@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_from_the_logsumexp_are_admitted(dtype: str) -> None:
    decided = 0
    for label, values, scalars in cross_entropies(dtype):
        acceptance = judge("cross_entropy", values, scalars)[1]
        for name in ("natural", "online"):
            y = algorithm(LOG_SUMS[name], cancels=True)(**values, **scalars)
            made = missed(y, acceptance)
            assert not made.missed.any(), f"{name}: {label}"
            decided += int((made.outcomes == Outcome.OK).sum())
    assert decided > 130


SPECIAL = [
    # Rows, targets, smoothing; what is admitted.
    ([[NAN, 0.0], [0.0, 0.0]], [0, 1], 0.0, [NAN]),
    ([[NAN, INF], [0.0, 0.0]], [-100, 1], 0.0, [math.log(2)]),
    ([[INF, 0.0]], [0], 0.0, [NAN]),
    ([[INF, 0.0]], [1], 0.0, [NAN]),
    ([[-INF, 0.0]], [0], 0.0, [INF]),
    ([[-INF, 0.0]], [1], 0.0, [0.0]),
    ([[-INF, 0.0]], [1], 0.1, [INF]),
    ([[-INF, 0.0]], [0], 1.0, [INF, NAN]),
    ([[-INF, -INF]], [0], 0.0, [NAN]),
    ([[-INF, 0.0], [NAN, 0.0]], [0, 0], 0.0, [NAN]),
    ([[0.0, 0.0]], [-100], 0.0, [NAN]),
]


@pytest.mark.parametrize(("rows", "target", "s", "admitted"), SPECIAL)
def test_special_values(
    rows: list[list[float]], target: list[int], s: float, admitted: list[float]
) -> None:
    values = {"logits": torch.tensor(rows), "target": torch.tensor(target)}
    for y in (NAN, INF, -INF, 0.0, math.log(2), 7.0):
        wanted = any(y == a or (y != y and a != a) for a in admitted)
        assert impostor(values, {"label_smoothing": s}, y) is not wanted, y


def test_no_row_at_all_is_nan() -> None:
    values = {"logits": torch.zeros(0, 3), "target": torch.zeros(0).long()}
    assert not impostor(values, {}, NAN)
    assert impostor(values, {}, 0.0)


def test_losses_that_overflow_on_the_way_are_undecided() -> None:
    """Differences of 6e38 overflow float32 though their mean does not."""
    logits = torch.tensor([[3e38, -3e38], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    values = {"logits": logits, "target": torch.tensor([1, 0, 0, 0])}
    acceptance = judge("cross_entropy", values)[1]
    assert missed(torch.tensor(INF), acceptance).outcomes.item() == Outcome.UNDECIDED
    assert not missed(torch.tensor(1.5e38), acceptance).missed.any()


@pytest.mark.parametrize("top", [1.0, float("inf")])
def test_a_label_clamped_to_the_ignored_one_counts_or_does_not(top: float) -> None:
    logits = torch.tensor([[top, 0.0], [0.0, 0.0]])
    values = {"logits": logits, "target": torch.tensor([-1, 1])}
    admitted = judge(
        "cross_entropy", values, {"ignore_index": 0}, out_of_bounds="clamp"
    )[1]
    log_p = torch.log_softmax(logits, -1)
    for y in (-(log_p[0, 0] + log_p[1, 1]) / 2, -log_p[1, 1]):
        assert not missed(y, admitted).missed.any()
    # Clamped to another one it counts.
    other = judge("cross_entropy", values, out_of_bounds="clamp")[1]
    assert missed(-log_p[1, 1], other).missed.any()
