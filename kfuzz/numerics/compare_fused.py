"""The comparator as one Triton kernel: outcomes, reduced for each member at once.

It repeats `compare` operation by operation in float64, and gives its
outcomes and its ratios bit for bit: what is rounded there is rounded here, and nothing
is contracted. Float constants are passed as their bits, for Triton takes floats for
float32.
"""

import struct
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import policies_of

BLOCK: Final = 512
# Programs that keep every multiprocessor of the largest devices busy.
_PROGRAMS: Final = 2048
# Dtypes that the kernel reads itself; the rest is converted before, which is exact too.
_READ: Final = frozenset({torch.float64, torch.float32, torch.float16})

_INF: Final = tl.constexpr(0x7FF0000000000000)
_ONE: Final = tl.constexpr(0x3FF0000000000000)
_TO_INTEGRAL: Final = tl.constexpr(0x4330000000000000)  # 2**52


@triton.jit  # type: ignore[untyped-decorator]
def _number(bits: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a float64 constant for each element."""
    return tl.full((block,), bits, tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def _power(exponent):  # type: ignore[no-untyped-def]
    """Return 2**exponent as float64."""
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _rounded(  # type: ignore[no-untyped-def]
    x, direction: tl.constexpr, precision: tl.constexpr, emin: tl.constexpr,
    greatest: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Return x rounded to a format, as `formats.round_to` does, but the sign of 0.

    Direction: 0 to nearest, ties to even, -1 down, 1 up.
    """
    inf = _number(_INF, block)
    zero = _number(0, block)
    finite = tl.abs(x) < inf
    safe = tl.where(finite, x, zero)
    bits = safe.to(tl.int64, bitcast=True)
    exponent = ((bits >> 52) & 0x7FF) - 1023 - (precision - 1)
    least = tl.full((block,), emin - precision + 1, tl.int64)
    exponent = tl.where(exponent < least, least, exponent)
    scaled = safe * _power(-exponent)
    # Adding and taking away 2**52 leaves the nearest integer, ties to even; numbers
    # from there on are integers.
    large = _number(_TO_INTEGRAL, block)
    size = tl.abs(scaled)
    near = tl.where(size < large, (size + large) - large, size)
    near = tl.where(scaled < zero, -near, near)
    one = _number(_ONE, block)
    if direction == -1:
        near = tl.where(near > scaled, near - one, near)
    if direction == 1:
        near = tl.where(near < scaled, near + one, near)
    rounded = near * _power(exponent)
    limit = _number(greatest, block)
    up = limit if direction == -1 else inf
    down = limit if direction == 1 else inf
    rounded = tl.where(rounded > limit, up, rounded)
    rounded = tl.where(rounded < -limit, -down, rounded)
    return tl.where(finite, rounded, x)


# Sizes differ from case to case, and where views begin: one compilation serves all.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["size", "members"],
    do_not_specialize_on_alignment=[
        "y_ptr", "low_ptr", "high_ptr", "reference_ptr", "classes_ptr",
        "undecided_ptr", "ambiguous_ptr", "related_ptr", "out_ptr",
    ],
)  # fmt: skip
def _judge(  # type: ignore[no-untyped-def]
    y_ptr, low_ptr, high_ptr, reference_ptr, classes_ptr, undecided_ptr,
    ambiguous_ptr, related_ptr, out_ptr, size, members,
    rounds: tl.constexpr, precision: tl.constexpr, emin: tl.constexpr,
    greatest: tl.constexpr, normal: tl.constexpr, unit: tl.constexpr,
    half_least: tl.constexpr, keeps_inf: tl.constexpr, nearest: tl.constexpr,
    to_inf: tl.constexpr, to_nan: tl.constexpr, saturates: tl.constexpr,
    flush: tl.constexpr, flushed: tl.constexpr, signed_zeros: tl.constexpr,
    is_related: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Judge some elements of one member and add what they are to its summary.

    Grid: (members, programs of each). `out` is int64 [4, members]: severest outcome,
    misses, undecided elements, bits of the greatest ratio.
    """
    member = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * block
    step = tl.num_programs(1).to(tl.int64) * block
    inf = _number(_INF, block)
    zero = _number(0, block)
    one = _number(_ONE, block)
    limit = _number(greatest, block)
    least_normal = _number(normal, block)
    nothing = tl.zeros((block,), tl.int32)
    worst = nothing
    missed = tl.zeros((block,), tl.int64)
    unsure_count = tl.zeros((block,), tl.int64)
    greatest_ratio = tl.zeros((block,), tl.int64)
    for start in range(first, size, step):
        at = start + tl.arange(0, block).to(tl.int64)
        there = at < size
        at = tl.where(there, at, 0) + member * size
        y = tl.load(y_ptr + at).to(tl.float64)
        a_low = tl.load(low_ptr + at)
        a_high = tl.load(high_ptr + at)
        reference = tl.load(reference_ptr + at)
        classes = tl.load(classes_ptr + at).to(tl.int32)
        undecided = tl.load(undecided_ptr + at) != 0
        ambiguous = tl.load(ambiguous_ptr + at) != 0

        low = a_low
        high = a_high
        if rounds:
            if nearest:
                low = _rounded(a_low, 0, precision, emin, greatest, block)
                high = _rounded(a_high, 0, precision, emin, greatest, block)
            else:
                low = _rounded(a_low, -1, precision, emin, greatest, block)
                high = _rounded(a_high, 1, precision, emin, greatest, block)
        if flushed:
            low = tl.where(tl.abs(low) < least_normal, zero, low)
            high = tl.where(tl.abs(high) < least_normal, zero, high)

        expects_finite = (classes & 1) != 0
        to_top = ((classes & 4) != 0) | (expects_finite & (high == inf))
        to_bottom = ((classes & 8) != 0) | (expects_finite & (low == -inf))
        admitted = classes & 2
        if to_inf:
            admitted = tl.where(to_top, admitted | 4, admitted)
            admitted = tl.where(to_bottom, admitted | 8, admitted)
        if keeps_inf:
            admitted = admitted | (classes & 12)
        if to_nan:
            admitted = tl.where(to_top | to_bottom, admitted | 2, admitted)

        is_nan = y != y
        is_finite = tl.abs(y) < inf
        is_inf = tl.abs(y) == inf
        inside = expects_finite & (y >= low) & (y <= high)
        if saturates:
            inside = inside | (to_top & (y == limit))
            inside = inside | (to_bottom & (y == -limit))
        if flush:
            crosses = expects_finite & (a_low < least_normal)
            crosses = crosses & (a_high > -least_normal)
            inside = inside | (crosses & (y == zero))
            if flushed:
                inside = inside & ((y == zero) | (tl.abs(y) >= least_normal))
        if signed_zeros:
            bits = y.to(tl.int64, bitcast=True)
            flipped = (bits ^ reference.to(tl.int64, bitcast=True)) < 0
            zeros = (y == zero) & (reference == zero)
            inside = inside & ~(zeros & flipped)
        y_class = tl.where(y > zero, nothing + 4, nothing + 8)
        y_class = tl.where(is_nan, nothing + 2, y_class)
        ok = tl.where(is_finite, inside, (y_class & admitted) != 0)

        # The codes are those of `compare.Outcome`.
        wants_inf = (admitted & 12) != 0
        code = tl.where(wants_inf, nothing + 4, nothing + 6)
        code = tl.where(expects_finite, nothing + 2, code)
        inf_code = tl.where(wants_inf, nothing + 3, nothing + 6)
        inf_code = tl.where(expects_finite, nothing + 5, inf_code)
        code = tl.where(is_inf, inf_code, code)
        code = tl.where(is_nan, nothing + 7, code)
        code = tl.where(ok, nothing, code)
        unsure = undecided | (ambiguous & ~ok)
        code = tl.where(unsure, nothing + 1, code)
        if is_related:
            unrelated = (code == 0) & (tl.load(related_ptr + at) == 0)
            refused = tl.where(ambiguous, nothing + 1, nothing + 2)
            code = tl.where(unrelated, refused, code)

        both = is_finite & expects_finite
        middle = tl.where(both, reference, zero)
        finite_y = tl.where(both, y, zero)
        error = tl.abs(finite_y - middle)
        above = tl.where(both, a_high, zero) - middle
        below = middle - tl.where(both, a_low, zero)
        half = tl.where(above > below, above, below)
        usable = (above == above) & (below == below) & (tl.abs(half) < inf)
        half = tl.where(usable & (half > zero), half, zero)
        rounding = _number(unit, block) * (tl.abs(middle) + half)
        rounding = rounding + _number(half_least, block)
        if not nearest:
            rounding = rounding + rounding
        tolerance = tl.where(half > zero, half + rounding, zero)
        usable = (tolerance > zero) & (code != 1)
        ratio = tl.where(usable, error, zero) / tl.where(usable, tolerance, one)

        # Bits of numbers that are not negative are in their order; NaN comes last.
        bits = ratio.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        bits = tl.where(there, bits, 0)
        code = tl.where(there, code, nothing)
        worst = tl.where(code > worst, code, worst)
        missed += (code >= 2).to(tl.int64)
        unsure_count += (code == 1).to(tl.int64)
        greatest_ratio = tl.where(bits > greatest_ratio, bits, greatest_ratio)

    out = out_ptr + member
    tl.atomic_max(out, tl.max(worst, 0).to(tl.int64))
    tl.atomic_add(out + members, tl.sum(missed, 0))
    tl.atomic_add(out + 2 * members, tl.sum(unsure_count, 0))
    tl.atomic_max(out + 3 * members, tl.max(greatest_ratio, 0))


def judged(y: Tensor, acceptance: Acceptance, related: Tensor | None) -> Tensor:
    """Return what became of each member's elements of one output.

    Args:
        y: the stored output, [members, *shape], no dimension empty.
        acceptance: of the same shape, on the same device.
        related: bool, of the same shape: what the operator's relation admits; None
            where it does not judge this output.

    Returns:
        int64 [4, members]: the severest outcome, the misses, the undecided elements,
        and the greatest ratio as the bits of a float64.
    """
    a, fmt = acceptance, acceptance.output
    members = y.shape[0]
    size = y.numel() // members
    policies = policies_of(a)
    if y.dtype not in _READ:
        y = y.to(torch.float64)
    flags = [_bytes(t) for t in (a.undecided, a.ambiguous)]
    out = torch.zeros((4, members), dtype=torch.int64, device=y.device)
    programs = min(triton.cdiv(size, BLOCK), max(1, _PROGRAMS // members))
    # Triton launches on the current device.
    with torch.cuda.device_of(y):  # type: ignore[no-untyped-call]
        _judge[(members, programs)](
            y.contiguous(),
            a.low.contiguous(),
            a.high.contiguous(),
            a.reference.contiguous(),
            a.classes.contiguous(),
            *flags,
            flags[0] if related is None else _bytes(related),
            out,
            size,
            members,
            rounds=fmt.name != "float64" and a.exact is None,
            precision=fmt.precision,
            emin=fmt.emin,
            greatest=_bits(fmt.max_finite),
            normal=_bits(fmt.min_normal),
            unit=_bits(fmt.unit),
            half_least=_bits(fmt.min_subnormal / 2),
            keeps_inf=fmt.has_inf and "inf" not in policies and "saturate" in policies,
            nearest=a.store == "rne",
            to_inf="inf" in policies,
            to_nan="nan" in policies,
            saturates="saturate" in policies,
            flush=a.flush,
            flushed=a.flush and a.flushed,
            signed_zeros=a.signed_zeros,
            is_related=related is not None,
            block=BLOCK,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out


def _bytes(flags: Tensor) -> Tensor:
    """Return truth values as bytes, contiguous."""
    return flags.contiguous().view(torch.uint8)


def _bits(number: float) -> int:
    """Return the bits of a float64."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])
