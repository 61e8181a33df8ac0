from typing import Any, Final

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.relation import compare_all
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.numerics.comparator.compare import Outcome
from kfuzz.numerics.formats import FORMATS, round_to
from tests.helpers.impostors import (
    Posed,
    Setup,
    Subject,
    case_of,
    check_constant_impostors,
    check_correct,
    check_half_precision,
    check_missing_specials,
    check_one_value_beyond,
    check_reference,
    pose_case,
)

FLOAT32: Final = FORMATS["float32"]


# --- correct algorithms -------------------------------------------------------


def where_by_copy(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    out = y.clone()
    out[mask] = x[mask]
    return out


def cast(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Round by hand: the oracle's own conversion must not be torch's."""
    to = FORMATS[str(dtype).removeprefix("torch.")]
    return round_to(x.double(), to).to(dtype)


def _greatest(x: Tensor, eps: float) -> Tensor:
    return x.float().abs().amax(-1, keepdim=True).clamp(min=eps)


def _codes(value: Tensor, peak: float) -> Tensor:
    if peak == 127:
        return torch.round(value.clamp(-peak, peak)).to(torch.int8)
    return value.clamp(-peak, peak).to(torch.float8_e4m3fn)


def dividing(peak: float, empty: float = 1.0) -> Any:
    """x / s; the scale of a row of zeros is `empty`."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = _greatest(x, eps) / peak
        codes = _codes(x.float() / torch.where(scale == 0, 1, scale), peak)
        return codes, torch.where(scale == 0, empty, scale).squeeze(-1)

    return quantize


def inverting(peak: float) -> Any:
    """x (peak / max|x|); a row of zeros has the scale 0."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        greatest = _greatest(x, eps)
        inverse = torch.where(greatest == 0, 0.0, peak / greatest)
        return _codes(x.float() * inverse, peak), (greatest / peak).squeeze(-1)

    return quantize


def reciprocal(peak: float) -> Any:
    """x (1 / s), s as max|x| times a rounded 1 / peak."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = _greatest(x, eps) * torch.tensor(1 / peak)
        inverse = torch.where(scale == 0, 0.0, 1 / scale)
        return _codes(x.float() * inverse, peak), scale.squeeze(-1)

    return quantize


def in_half(peak: float) -> Any:
    """All of it in the data's own format."""

    def quantize(x: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=eps) / peak
        return _codes((x / scale).float(), peak), scale.squeeze(-1).float()

    return quantize


def dequantize(q: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    return (q.float() * scale.unsqueeze(-1)).to(dtype)


def dequantize_fused(q: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The product rounded once, to the result's format."""
    exact = q.double() * scale.double().unsqueeze(-1)
    return round_to(exact, FORMATS[str(dtype).removeprefix("torch.")]).to(dtype)


def dequantize_in_half(q: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    return q.to(scale.dtype) * scale.unsqueeze(-1)


# --- subjects -----------------------------------------------------------------


def quantizer(operator: Any, peak: float, *dtypes: str) -> Subject:
    shapes: tuple[tuple[int, ...], ...] = ((3, 33), (7,), (2, 2, 1))
    scalars = ({"eps": 0.0}, {"eps": 1e-10}, {"eps": 1e-5})
    return Subject(
        operator,
        dividing(peak),
        tuple(Setup((s,), k) for s, k in zip(shapes, scalars, strict=True)),
        Setup(((4, 64),), {"eps": 0.0}),
        correct={
            "scale 0": dividing(peak, 0.0),
            "inverse": inverting(peak),
            "reciprocal": reciprocal(peak),
        },
        half=in_half(peak),
        dtypes=dtypes,
        decided=0.8,
    )


def dequantizer(operator: Any, **known: Any) -> Subject:
    shapes: tuple[tuple[int, ...], ...] = ((3, 33), (7,), (2, 0))
    kinds = ("float32", "float16", "bfloat16")
    return Subject(
        operator,
        dequantize,
        tuple(
            Setup((s, s[:-1]), {"dtype": k}) for s, k in zip(shapes, kinds, strict=True)
        ),
        Setup(((4, 64), (4,)), {"dtype": "float32"}),
        correct={"fused": dequantize_fused},
        half=dequantize_in_half,
        dtypes=("float32",),
        **known,
    )


SHAPES: Final = ((3, 33), (), (0,))
WHERE: Final = Subject(
    ops.where,
    torch.where,
    tuple(Setup((s, s, s)) for s in SHAPES),
    Setup(((4, 64),) * 3),
    correct={"copy": where_by_copy},
    dtypes=("float32",),
)
CASTS: Final = [
    Subject(
        ops.cast,
        cast,
        tuple(Setup((s,), {"dtype": name}) for s in SHAPES),
        Setup(((4, 64),), {"dtype": name}),
        correct={"torch": lambda x, dtype: x.to(dtype)},
        right=frozenset({"identity"}),
        families=("randn", "uniform01"),
        dtypes=("float32",),
    )
    for name in ("float16", "bfloat16", "float8_e4m3fn")
]
TO_FLOAT16, TO_BFLOAT16, TO_FLOAT8 = CASTS
INT8: Final = quantizer(ops.quantize_int8, 127, "float32", "bfloat16")
QUANTIZERS: Final = [INT8, quantizer(ops.quantize_fp8, 448, "float32")]
DEQUANTIZERS: Final = [
    dequantizer(ops.dequantize_int8),
    # No family of codes or of scales beside them holds an infinity.
    dequantizer(ops.dequantize_fp8, infinities=False),
]


def named(subjects: list[Subject]) -> Any:
    return pytest.mark.parametrize(
        ("subject", "dtype"),
        [(s, d) for s in subjects for d in s.dtypes],
        ids=lambda x: x if isinstance(x, str) else _label(x),
    )


def _label(subject: Subject) -> str:
    target = subject.ordinary.scalars.get("dtype", "")
    return f"{subject.operator.name} {target}".strip()


MOVES: Final = [WHERE, *CASTS]
EVERY: Final = [*MOVES, *QUANTIZERS, *DEQUANTIZERS]
# What overflows in E4M3 is NaN or saturated: neither is a value beyond.
WITH_INF: Final = [s for s in EVERY if s is not TO_FLOAT8]


@named(EVERY)
def test_correct_algorithms_are_admitted(subject: Subject, dtype: str) -> None:
    check_correct(subject, dtype)


@named(EVERY)
def test_the_reference_is_the_oracle(subject: Subject, dtype: str) -> None:
    check_reference(subject, dtype)


@named(EVERY)
def test_impostors_are_refused(subject: Subject, dtype: str) -> None:
    check_constant_impostors(subject, dtype)


@named(WITH_INF)
def test_one_value_beyond_is_refused(subject: Subject, dtype: str) -> None:
    check_one_value_beyond(subject, dtype)


@named(WITH_INF)
def test_missing_specials_are_refused(subject: Subject, dtype: str) -> None:
    check_missing_specials(subject, dtype)


@named([*QUANTIZERS, *DEQUANTIZERS])
def test_a_run_in_half_precision_is_refused(subject: Subject, dtype: str) -> None:
    check_half_precision(subject, dtype)


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
