"""Operators that libraries ship: what their references say, and what is refused."""

import math
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, compare_all, pose
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Verdict
from kfuzz.strategies.parameters import ScalarParameter
from tests.helpers.judged_cases import judged

TORCH: Final = {k.name: k for k in kernels("cpu", str(torch.__version__))}
INF: Final = math.inf


def drawn(
    operator: Operator, sizes: dict[str, int], seed: int = 0, **exact: Tensor
) -> dict[str, Tensor]:
    """Return a tensor for each required parameter: normal, or as given."""
    random = torch.Generator().manual_seed(seed)
    made = {}
    for name, parameter in operator.tensors.items():
        shape = [sizes[n] for n in parameter.names if n in sizes]
        if name in exact:
            made[name] = exact[name]
        elif parameter.optional:
            continue
        elif parameter.dtype:
            dtype = getattr(torch, parameter.dtype)
            codes = torch.randint(0, 100, shape, generator=random)
            integral = DTYPES[parameter.dtype].kind != "float"
            made[name] = (codes if integral else codes / 40).to(dtype)
        elif parameter.kind == "float":
            made[name] = torch.randn(shape, generator=random)
    return made


def pinned(operator: Operator, tensors: dict[str, Tensor], **scalars: Any) -> Case:
    """Return the case of these very values."""
    specs = {}
    for name, x in tensors.items():
        raw = x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        parameter = operator.tensors[name]
        dtype = str(x.dtype).removeprefix("torch.")
        below = getattr(parameter, "below", "")
        specs[name] = TensorSpec(
            tuple(x.shape), parameter.names, dtype, values=raw, below=below,
            domain=parameter.domain,
        )  # fmt: skip
    known = {
        n: p.default
        for n, p in operator.scalars.items()
        if isinstance(p, ScalarParameter)
    }
    return Case(specs, known | scalars)


def heads(seed: int = 1, keys: int = 40) -> dict[str, Tensor]:
    sizes = {"B": 1, "H": 4, "G": 2, "S": 6, "T": keys, "D": 8}
    return drawn(ops.attention, sizes, seed)


def by_rows(
    q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None,
    softcap: float | None = None, sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention and its log-sum-exp, each row by a loop over its visible keys."""
    y, lse = torch.zeros(q.shape, dtype=torch.float64), torch.zeros(q.shape[:-1])
    for h in range(q.shape[1]):
        group = h // (q.shape[1] // k.shape[1])
        for i in range(q.shape[2]):
            weights, total, out = [], 0.0, torch.zeros(v.shape[-1]).double()
            for j in range(k.shape[2]):
                if window is not None and abs(i - j) >= window:
                    continue
                score = float(q[0, h, i].double() @ k[0, group, j].double())
                score /= math.sqrt(q.shape[-1])
                if softcap is not None:
                    score = softcap * math.tanh(score / softcap)
                weights.append(math.exp(score))
                out = out + weights[-1] * v[0, group, j].double()
            total = sum(weights) + (0.0 if sinks is None else math.exp(sinks[h]))
            y[0, h, i] = out / total if total else 0.0
            lse[0, h, i] = math.log(total) if total else -INF
    return y, lse


def missed(
    operator: Operator, tensors: dict[str, Tensor], results: dict[str, Tensor],
    **scalars: Any,
) -> bool:  # fmt: skip
    """Whether some result is not accepted."""
    case = pinned(operator, tensors, **scalars)
    accepted = accept(operator, pose(operator, case, tensors, operator.defaults))
    found = compare_all(results, accepted)
    return any(bool(made.missed.any()) for made in found.values())


@pytest.mark.parametrize(
    "scalars", [{"window": 3}, {"softcap": 1.0}, {"window": 2, "softcap": 30.0}, {}]
)
def test_windows_caps_and_sinks_mean_what_a_loop_over_keys_says(
    scalars: dict[str, Any],
) -> None:
    given = heads()
    sinks = torch.tensor([0.5, -1.0, 3.0, -INF])
    tensors = {**given, "sinks": sinks}
    right, _ = by_rows(*given.values(), sinks=sinks, **scalars)
    assert not missed(ops.attention, tensors, {"y": right.float()}, **scalars)
    forgotten, _ = by_rows(*given.values(), **scalars)
    assert missed(ops.attention, tensors, {"y": forgotten.float()}, **scalars)


def test_the_log_sum_exp_is_that_of_visible_keys() -> None:
    given = heads()
    y, lse = by_rows(*given.values(), window=3)
    _, of_all = by_rows(*given.values())
    for found, right in ((lse, True), (of_all, False)):
        results = {"y": y.float(), "lse": found}
        assert missed(ops.attention_lse, given, results, window=3) is not right


def test_sequences_end_to_end_do_not_see_one_another() -> None:
    given = heads(keys=7)
    q, k, v = (given[n][0].transpose(0, 1).contiguous() for n in ("q", "k", "v"))
    cu = {"cu_q": torch.tensor([0, 2, 2, 6]), "cu_k": torch.tensor([0, 3, 4, 7])}
    tensors = {"q": q, "k": k, "v": v, **cu}
    # What one sequence holds must not reach another, NaN least of all.
    tensors["k"][:3] = math.nan
    case = pinned(ops.attention_varlen, tensors, causal=False)
    function = TORCH["torch_attention_varlen"].function
    found = judged(
        ops.attention_varlen, function, case, algorithm="unfused", masked_row="nan"
    )
    assert found.failure is None, found.failure
    assert found.verdicts["K-VAL-01"] is Verdict.CONFORMS

    def all_of_one(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> Any:
        last = torch.tensor([0, q.shape[0]]), torch.tensor([0, k.shape[0]])
        return function(q, k, v, *last)

    assert judged(ops.attention_varlen, all_of_one, case).failure is not None


def test_equal_logits_may_be_kept_in_any_number_above_k() -> None:
    logits = torch.tensor([3.0, 1.0, 1.0, 1.0, 0.0])
    given = {"logits": logits}
    kept = {
        (0, 1): True, (0, 3): True, (0, 1, 2, 3): True,
        (0,): False, (1, 2): False, (0, 1, 2, 3, 4): False,
    }  # fmt: skip
    for places, right in kept.items():
        y = torch.full_like(logits, -INF)
        y[list(places)] = logits[list(places)]
        assert missed(ops.top_k_filter, given, {"y": y}, k=2) is not right, places


def test_the_nucleus_keeps_what_reaches_p_and_no_more() -> None:
    # Probabilities of 8, 4, 2, 1 and 1 sixteenths.
    logits = torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0]).log()
    given = {"logits": logits}
    for count in range(1, 6):
        y = torch.where(torch.arange(5) < count, logits, -INF)
        assert missed(ops.top_p_filter, given, {"y": y}, p=0.8) is (count != 3), count


def test_equal_probabilities_may_be_routed_in_either_order() -> None:
    logits = torch.tensor([[2.0, 5.0, 5.0, 1.0]])
    given = {"logits": logits}
    halves = torch.full((1, 2), 0.5)
    for named, right in {
        (1, 2): True,
        (2, 1): True,
        (1, 1): False,
        (0, 1): False,
    }.items():
        results = {"weights": halves, "indices": torch.tensor([named])}
        wrong = missed(ops.topk_routing, given, results, k=2, renormalize=True)
        assert wrong is not right, named


@pytest.mark.parametrize("given", ["weight", "pos_weight"])
def test_an_omitted_weight_is_not_taken_for_the_other_one(given: str) -> None:
    random = torch.Generator().manual_seed(3)
    x, target = torch.randn(8, generator=random), torch.rand(8, generator=random)
    share = torch.rand(8, generator=random) * 4
    tensors = {"x": x, "target": target, given: share}
    for named, wrong in ((given, False), ("neither", True)):
        y = torch.nn.functional.binary_cross_entropy_with_logits(
            x, target, reduction="none", **({named: share} if named == given else {})
        )
        found = missed(ops.bce_with_logits, tensors, {"y": y}, reduction="none")
        assert found is wrong


def test_behind_a_cap_a_mask_is_rounded_as_it_stands() -> None:
    given = {n: x.half() for n, x in heads(keys=12).items()}
    mask = torch.linspace(-150, -100, 6 * 12).reshape(6, 12).half()
    case = pinned(ops.attention_lse, {**given, "mask": mask}, softcap=1.0)
    function = TORCH["torch_attention_lse"].function
    claims = {"algorithm": "unfused", "masked_row": "nan"}
    found = judged(ops.attention_lse, function, case, **claims)
    assert found.failure is None, found.failure
    assert found.verdicts["K-VAL-01"] is Verdict.CONFORMS


@pytest.mark.parametrize(("decay", "wrong"), [(-88.5, False), (-10.0, True)])
def test_a_decay_that_vanishes_may_take_a_large_state_with_it(
    decay: float, wrong: bool
) -> None:
    sizes = {"B": 1, "T": 1, "H": 1, "D": 1, "E": 1}
    zero, one = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    tensors = drawn(ops.linear_attention, sizes, q=one, k=zero, v=zero) | {
        "decay": torch.full((1, 1, 1), decay),
        "state": torch.full((1, 1, 1, 1), 1e28),
    }
    results = {"y": zero, "final_state": zero}
    assert missed(ops.linear_attention, tensors, results, scale=1.0) is wrong


@pytest.mark.parametrize("operator", [ops.linear_attention, ops.delta_rule])
def test_a_later_key_of_a_chunk_may_overflow_beside_an_earlier_query(
    operator: Operator,
) -> None:
    sizes = {"B": 1, "T": 2, "H": 1, "D": 1, "E": 1}
    k = torch.tensor([1.0, -3e38]).reshape(1, 2, 1, 1)
    exact = {"beta": torch.zeros(1, 2, 1)} if operator is ops.delta_rule else {}
    tensors = drawn(operator, sizes, q=torch.full((1, 2, 1, 1), 2.0), k=k, **exact)
    tensors["v"] = torch.zeros(1, 2, 1, 1)
    y = torch.tensor([math.nan, 0.0]).reshape(1, 2, 1, 1)
    results = {"y": y, "final_state": torch.zeros(1, 1, 1, 1)}
    scalars = {"normalize": False} if exact else {}
    assert not missed(operator, tensors, results, scale=1.0, **scalars)


def test_codes_may_be_multiplied_before_they_are_scaled() -> None:
    x = torch.full((1, 8), 3e38)
    codes = torch.full((1, 8), 0x77777777, dtype=torch.int32)
    zero = torch.full((1, 1), 0x11111111, dtype=torch.int32)
    tensors = {"x": x, "codes": codes, "scale": torch.zeros(1, 8), "zero": zero}
    assert not missed(ops.gptq_matmul, tensors, {"y": torch.full((1, 8), math.nan)})
    tensors["x"] = torch.ones(1, 8)
    assert missed(ops.gptq_matmul, tensors, {"y": torch.full((1, 8), math.nan)})


def test_an_infinite_loss_may_be_nan_where_another_logit_overflows() -> None:
    x = torch.tensor([[300.0]]).half()
    for other, right in ((300.0, True), (3.0, False)):
        weight = torch.tensor([[-INF], [other]]).half()
        tensors = {"x": x, "weight": weight, "target": torch.tensor([0])}
        case = pinned(ops.linear_cross_entropy, tensors, reduction="none")
        claims = ops.linear_cross_entropy.defaults.declare("k", intermediates="output")
        posed = pose(ops.linear_cross_entropy, case, tensors, claims)
        accepted = accept(ops.linear_cross_entropy, posed)
        found = compare_all({"y": torch.tensor([math.nan]).half()}, accepted)
        assert bool(found["y"].missed.any()) is not right


def test_nan_of_codes_of_8_bits_is_charged() -> None:
    exact = {
        "scale_a": torch.full((2, 1), 127, dtype=torch.uint8),
        "scale_b": torch.full((1, 2), 127, dtype=torch.uint8),
    }
    sizes = {"M": 2, "K": 32, "N": 2, "G": 1}
    tensors = drawn(ops.mx_matmul, sizes, **exact)
    case = pinned(ops.mx_matmul, tensors, dtype="float32")
    right = TORCH["torch_mx_matmul"].function
    found = judged(ops.mx_matmul, lambda *t, **s: right(*t, **s) * math.nan, case)
    assert found.error is None
    assert found.failure is not None
