from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts.oracle import compare_all
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.numerics.compare import Outcome
from tests.helpers.impostors import (
    Posed,
    Subject,
    case_of,
    pose_case,
)
from tests.helpers.subjects.quantization import (
    INT8,
    QUANTIZERS,
    TO_BFLOAT16,
    TO_FLOAT8,
    WHERE,
    _codes,
    in_half,
)

# --- selections and conversions -----------------------------------------------


def test_what_is_not_selected_does_not_show() -> None:
    x, y = torch.tensor([1.0, float("nan")]), torch.tensor([float("inf"), 2.0])
    case = _posed(WHERE, mask=torch.tensor([True, False]), x=x, y=y)
    assert not case.refuses({"y": torch.tensor([1.0, 2.0])})
    blended = x * torch.tensor([1.0, 0.0]) + y * torch.tensor([0.0, 1.0])
    assert blended.isnan().all()
    assert case.refuses({"y": blended})


def test_a_cast_rounds_once() -> None:
    x = torch.tensor([1 + 2.0**-8 + 2.0**-13, 1.0])  # 1 + 2^-8 is a tie of bfloat16
    case = _posed(TO_BFLOAT16, {"dtype": "bfloat16"}, x=x)
    assert not case.refuses({"y": x.bfloat16()})
    assert case.refuses({"y": x.to(torch.float16).bfloat16()})


@pytest.mark.parametrize(
    ("overflow", "admitted"),
    [("inf", [448.0, float("nan")]), ("saturate", [448.0]), ("nan", [float("nan")])],
)
def test_overflow_of_a_cast_is_as_declared(
    overflow: str, admitted: list[float]
) -> None:
    x = torch.tensor([500.0])
    case = _posed(TO_FLOAT8, {"dtype": "float8_e4m3fn"}, overflow=overflow, x=x)
    for value in (448.0, 416.0, float("nan")):
        y = torch.tensor([value]).to(torch.float8_e4m3fn)
        assert case.refuses({"y": y}) != (str(value) in map(str, admitted)), value


# --- codes --------------------------------------------------------------------


def _posed(
    subject: Subject, scalars: dict[str, Any] | None = None, /, *,
    overflow: str = "inf", approx: bool = False, accumulator: str = "float32",
    store: str = "rne", **tensors: Tensor,
) -> Posed:  # fmt: skip
    specs = {}
    for name, x in tensors.items():
        parameter = subject.operator.tensors[name]
        leading = x.dim() - len(parameter.names)
        axes = (*(f"d{i}" for i in range(leading)), *parameter.names)
        raw = x.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        dtype = str(x.dtype).removeprefix("torch.")
        specs[name] = TensorSpec(tuple(x.shape), axes, dtype, values=raw)
    case = Case(specs, scalars or {})
    return pose_case(
        subject, case,
        overflow=overflow, approx=approx, accumulator=accumulator, store=store,
    )  # fmt: skip


def _results(codes: list[int], scale: float) -> dict[str, Tensor]:
    q = torch.tensor([codes], dtype=torch.int8)
    return {"q": q, "scale": torch.tensor([scale])}


def test_ties_go_to_even_where_the_quotient_is_exact() -> None:
    x = torch.tensor([[127.0, 2.5, 3.5, -0.5, -1.5]])
    even, away = _results([127, 2, 4, 0, -2], 1.0), _results([127, 3, 4, -1, -2], 1.0)
    exact = _posed(INT8, {"eps": 0.0}, x=x)
    assert not exact.refuses(even)
    found = exact.compare(away)["q"]
    assert found.missed.tolist() == [[[False, True, False, True, False]]]
    # Such numbers do not round in narrower formats either.
    half = _posed(INT8, {"eps": 0.0}, accumulator="float16", x=x)
    assert half.refuses(away)
    fast = _posed(INT8, {"eps": 0.0}, approx=True, x=x)
    assert not fast.refuses(even)
    assert not fast.refuses(away)


def test_codes_are_judged_with_the_scale_that_was_returned() -> None:
    # 13 u above a tie: beyond what the division may do, within what another
    # admissible scale would.
    x = torch.tensor([[127.0, 63.5 + 13 * 2.0**-18]])
    case = _posed(INT8, {"eps": 0.0}, x=x)
    assert not case.refuses(_results([127, 64], 1.0))
    found = case.compare(_results([127, 63], 1.0))["q"]
    assert found.unrelated is not None
    assert found.unrelated.tolist() == [[[False, True]]]
    assert int(found.outcomes[0, 0, 1]) == Outcome.VALUE
    assert not case.refuses(_results([127, 63], 1 + 2.0**-22))


def test_a_scale_may_be_the_reciprocal_of_the_factor() -> None:
    """The data times peak / max|x|, the scale 1 over it, each 2 ulp off."""

    def off(value: Tensor, towards: float) -> Tensor:
        end = torch.full_like(value, towards)
        return torch.nextafter(torch.nextafter(value, end), end)

    for subject, peak in zip(QUANTIZERS, (127, 448), strict=True):
        for down, up in ((0.0, float("inf")), (float("inf"), 0.0)):
            made = case_of(subject, "float32", "randn", subject.ordinary)
            case = pose_case(subject, made)
            x = case.values["x"]
            factor = off(peak / x.abs().amax(-1), up)
            scale = off(1 / factor, down)
            q = _codes(x * factor.unsqueeze(-1), peak)
            assert not case.refuses({"q": q, "scale": scale})
            beyond = scale * (1 + 2.0**-20)
            assert case.refuses({"q": q, "scale": beyond})


def test_codes_rounded_at_random_are_admitted_where_declared() -> None:
    x = torch.tensor([[127.0, 2.5, -3.25, 4.0]])
    below, above = _results([127, 2, -4, 4], 1.0), _results([127, 3, -3, 4], 1.0)
    case = _posed(INT8, {"eps": 0.0}, store="stochastic", x=x)
    nearest = _posed(INT8, {"eps": 0.0}, x=x)
    for results in (below, above):
        assert not case.refuses(results)
        assert nearest.refuses(results)
    assert case.refuses(_results([127, 4, -3, 4], 1.0))
    assert case.refuses(_results([127, 2, -3, 5], 1.0))


def test_a_row_of_zeros_has_any_scale_and_codes_of_zero() -> None:
    case = _posed(INT8, {"eps": 0.0}, x=torch.zeros(1, 2))
    for scale in (0.0, 1e-10, 1.0):
        assert not case.refuses(_results([0, 0], scale))
        assert case.refuses(_results([0, 1], scale))
    for scale in (float("nan"), float("inf"), -1.0):
        assert case.refuses(_results([0, 0], scale))


def test_special_values_show_in_the_scale() -> None:
    nan, inf = float("nan"), float("inf")
    swallowed = _posed(INT8, {"eps": 0.0}, x=torch.tensor([[nan, 1.0]]))
    assert swallowed.refuses(_results([0, 127], 1 / 127))
    assert not swallowed.refuses(_results([5, 7], nan))
    infinite = _posed(INT8, {"eps": 0.0}, x=torch.tensor([[inf, 1.0]]))
    assert not infinite.refuses(_results([-3, 0], inf))
    assert infinite.refuses(_results([-3, 1], inf))


def test_codes_are_undecided_where_the_reciprocal_of_a_scale_overflows() -> None:
    x = torch.tensor([[127.0, 3.0]]) * 2.0**-130
    case = _posed(INT8, {"eps": 0.0}, x=x)
    made = compare_all(_results([0, 0], 2.0**-130), case.accepted)
    assert (made["q"].outcomes == Outcome.UNDECIDED).all()


def test_half_precision_intermediates_are_admitted_where_declared() -> None:
    for seed in range(1, 5):
        drawn = case_of(INT8, "float16", "randn", INT8.ordinary, seed=seed)
        case = pose_case(INT8, drawn, intermediates="output")
        assert not case.refuses(case.run(in_half(127)))
