"""matmul(a, b): the matrix product."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(a: Any, b: Any) -> Any:
    """torch.matmul(a, b), a [M, K], b [K, N]."""
    import torch

    return torch.matmul(a, b)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return a b +- R(K) (|a| |b|).

    R is gamma(K+1, u) for float32 operands and the greater of it and
    2.5 (K + 4) u for 16-bit ones, whose products are exact and whose sums
    tensor cores truncate; 0 where the exactness test holds.
    """
    import torch

    from kfuzz.numerics.acceptance import NAN, around
    from kfuzz.numerics.bounds import (
        TENSOR_CORE,
        U64,
        Accumulation,
        can_overflow,
        fits_exactly,
        gamma,
    )
    from kfuzz.numerics.formats import FORMATS, lowest_bit_exponent
    from kfuzz.numerics.specials import sum_classes

    a, b = problem.tensors["a"], problem.tensors["b"]
    inner = a.shape[-1]
    claims = problem.declaration
    acc = Accumulation.declared(claims, attribution=problem.attribution)
    fa = torch.where(torch.isfinite(a), a, torch.zeros_like(a))
    fb = torch.where(torch.isfinite(b), b, torch.zeros_like(b))
    product, magnitude = fa @ fb, fa.abs() @ fb.abs()
    coefficient = acc.coefficient(inner + 1)
    if problem.format.precision <= 11 and acc.format.name == "float32":
        coefficient = max(coefficient, TENSOR_CORE * (inner + 4) * acc.format.unit)
    if acc.tf32:
        # Operands truncated to TF32: each factor loses up to 2^-10. Their
        # products are exact, so tensor cores truncate these sums too.
        coefficient = max(coefficient, TENSOR_CORE * (inner + 4) * acc.format.unit)
        coefficient += (1 + 2 * FORMATS["tf32"].unit) ** 2 - 1
    error = (coefficient + gamma(inner, U64)) * magnitude

    flush = claims.subnormals != "preserve"
    fmt = acc.format
    least = fmt.min_normal if flush else fmt.min_subnormal
    error = error + (inner + 1) * least
    if flush:
        small_a = torch.where(fa.abs() < problem.format.min_normal, fa.abs(), 0.0)
        small_b = torch.where(fb.abs() < problem.format.min_normal, fb.abs(), 0.0)
        error = error + small_a @ fb.abs() + fa.abs() @ small_b
    if inner and not acc.tf32:
        low_a = lowest_bit_exponent(fa).amin(-1).unsqueeze(-1)
        low_b = lowest_bit_exponent(fb).amin(-2).unsqueeze(-2)
        normal = (_least_nonzero(fa) >= problem.format.min_normal).all(-1, True)
        normal_b = (_least_nonzero(fb) >= problem.format.min_normal).all(-2, True)
        exact = fits_exactly(magnitude, low_a + low_b, acc, flush=flush)
        if flush:
            exact = exact & normal & normal_b
        error = torch.where(exact, torch.zeros_like(error), error)

    positive = (fa.clamp(min=0) @ fb.clamp(min=0)) + (
        (-fa).clamp(min=0) @ (-fb).clamp(min=0)
    )
    negative = (fa.clamp(min=0) @ (-fb).clamp(min=0)) + (
        (-fa).clamp(min=0) @ fb.clamp(min=0)
    )
    classes = sum_classes(
        *_product_classes(a, b), can_overflow(positive, negative, inner, acc)
    )
    admitted = classes.admitted
    if flush:
        lost = _flushed_by_infinity(a, b, problem.format.min_normal)
        admitted = torch.where(lost, admitted | NAN, admitted)
    return {
        "y": around(
            problem,
            torch.where(classes.finite, product, classes.reference),
            error,
            classes=admitted,
            ambiguous=classes.ambiguous,
        )
    }


def _flushed_by_infinity(a: Any, b: Any, least: float) -> Any:
    """Return where a subnormal meets an infinity: flushed, 0 * Inf is NaN."""
    import torch

    def meet(left: Any, right: Any) -> Any:
        return left.to(torch.float64) @ right.to(torch.float64) > 0

    small_a = (a != 0) & (a.abs() < least)
    small_b = (b != 0) & (b.abs() < least)
    return meet(small_a, torch.isinf(b)) | meet(torch.isinf(a), small_b)


def _least_nonzero(x: Any) -> Any:
    import torch

    return torch.where(x == 0, torch.full_like(x, float("inf")), x.abs())


def _product_classes(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return where the terms of each output hold NaN, +Inf and -Inf.

    A class-only matrix product: counts of pairs, exact in float64.
    """
    import torch

    def count(left: Any, right: Any) -> Any:
        return left.to(torch.float64) @ right.to(torch.float64)

    inf = float("inf")
    a_nan, b_nan = a.isnan(), b.isnan()
    some_a, some_b = torch.ones_like(a), torch.ones_like(b)
    nan = count(a_nan, some_b) + count(some_a, b_nan)
    nan = nan + count(a == 0, b.abs() == inf) + count(a.abs() == inf, b == 0)
    plus = count(a == inf, b > 0) + count(a == -inf, b < 0)
    plus = plus + count(a > 0, b == inf) + count(a < 0, b == -inf)
    minus = count(a == inf, b < 0) + count(a == -inf, b > 0)
    minus = minus + count(a > 0, b == -inf) + count(a < 0, b == inf)
    return nan > 0, plus > 0, minus > 0


matmul = Operator(
    "matmul",
    inputs={"a": ks.tensors("M K"), "b": ks.tensors("K N")},
    oracle=reference,
    error=accept,
    reduced="K",
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(ab - E) <= y <= RNE(ab + E), E = R |a||b| + (K+1) lambda, "
        "R = gamma(K+1, u) for float32, max(gamma(K+1, u), 2.5 (K+4) u) for 16-bit "
        "operands in float32 accumulators; E = 0 where every order is exact",
        "K products and K-1 additions in any order, fused or not; truncating tensor "
        "cores of all vendors lie within 2.5 (K+4) u",
    ),
    special_values="NaN terms, 0 * Inf and both infinities give NaN, else the "
    "infinity; undecided where some order overflows the accumulator; 0 if K = 0; NaN "
    "too where a subnormal that may be flushed meets an infinity",
)
