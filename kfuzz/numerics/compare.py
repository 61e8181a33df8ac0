"""The comparator: classes before numbers, and nothing that lets a NaN pass.

The same code runs on host and device. Every operation in it is exact (class
tests, scaling by powers of two, comparisons, boolean algebra), so the outcomes
are equal bit for bit; `tests/gpu` holds it to that.
"""

import base64
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from kfuzz.core.recipe import contiguous_strides
from kfuzz.core.verdict import (
    EXACT,
    GREATEST,
    STEPS,
    UNBOUNDED,
    UNDECIDED,
    WITHIN,
    ErrorMap,
    Kind,
    block_of,
    in_digits,
)
from kfuzz.numerics.acceptance import (
    FINITE,
    NAN,
    NEGATIVE_INF,
    POSITIVE_INF,
    Acceptance,
    classes_of,
)
from kfuzz.numerics.formats import is_subnormal


class Outcome(IntEnum):
    """What became of one output element; the misses are ordered by severity."""

    OK = 0
    UNDECIDED = 1
    VALUE = 2
    INF_SIGN = 3
    INF_MISSING = 4
    INF_UNEXPECTED = 5
    NAN_MISSING = 6
    NAN_UNEXPECTED = 7


KIND_OF = {
    Outcome.VALUE: Kind.VALUE,
    Outcome.INF_SIGN: Kind.INF_SIGN,
    Outcome.INF_MISSING: Kind.INF_MISSING,
    Outcome.INF_UNEXPECTED: Kind.INF_UNEXPECTED,
    Outcome.NAN_MISSING: Kind.NAN_MISSING,
    Outcome.NAN_UNEXPECTED: Kind.NAN_UNEXPECTED,
}


@dataclass(frozen=True)
class Comparison:
    """The outcome of every element of one output.

    Attributes:
        outcomes: uint8 `Outcome` codes, [members, *shape].
        value: float64, the stored output.
        acceptance: what it was held against.
        unrelated: bool, elements that miss for the relation between the results
            alone; None where there is none.
    """

    outcomes: Tensor
    value: Tensor
    acceptance: Acceptance
    unrelated: Tensor | None = None

    @property
    def missed(self) -> Tensor:
        """Bool mask of the elements that violate."""
        return self.outcomes >= Outcome.VALUE

    @property
    def low(self) -> Tensor:
        """float64, least allowed stored value."""
        return self.acceptance.stored[0]

    @property
    def high(self) -> Tensor:
        """float64, greatest allowed stored value."""
        return self.acceptance.stored[1]

    @property
    def error(self) -> Tensor:
        """float64 |y - reference| where both are finite, else 0."""
        return self._distances[0]

    @property
    def tolerance(self) -> Tensor:
        """float64, the interval's half-width, 0 where the result must be exact.

        It includes the rounding of the store: E + u(|ref| + E) + eta/2.
        """
        return self._distances[1]

    @cached_property
    def ratio(self) -> Tensor:
        """|error| / tolerance, 0 where the tolerance is 0 or undecided."""
        usable = (self.tolerance > 0) & (self.outcomes != Outcome.UNDECIDED)
        safe = torch.where(usable, self.tolerance, torch.ones_like(self.tolerance))
        return torch.where(usable, self.error / safe, torch.zeros_like(self.error))

    @cached_property
    def _distances(self) -> tuple[Tensor, Tensor]:
        return _error_and_tolerance(self.value, self.acceptance)


def compare(y: Tensor, acceptance: Acceptance) -> Comparison:
    """Hold a kernel's output against its acceptance.

    Args:
        y: the stored output, [members, *shape], in the output's dtype.
        acceptance: of the same shape.

    Raises:
        ValueError: if the shapes differ (metadata is judged before).
    """
    a = acceptance
    if y.shape != a.reference.shape:
        raise ValueError(f"output {tuple(y.shape)}, acceptance {a.reference.shape}")
    value = y.to(torch.float64)
    if y.device.type == "cpu" and _is_plainly_inside(y, value, a):
        return Comparison(torch.zeros_like(value, dtype=torch.uint8), value, a)
    return Comparison(outcomes_of(y, value, a), value, a)


def outcomes_of(y: Tensor, value: Tensor, a: Acceptance) -> Tensor:
    """Return the `Outcome` of every element.

    Args:
        y: as in `compare`.
        value: the same in float64.
        a: its acceptance.
    """
    fmt = a.output
    low, high = a.stored
    expects_finite = (a.classes & FINITE) != 0
    beyond_top = expects_finite & (high == float("inf"))
    beyond_bottom = expects_finite & (low == float("-inf"))
    to_top = ((a.classes & POSITIVE_INF) != 0) | beyond_top
    to_bottom = ((a.classes & NEGATIVE_INF) != 0) | beyond_bottom
    policies = policies_of(a)
    admitted = torch.where((a.classes & NAN) != 0, NAN, 0).to(torch.uint8)
    if "inf" in policies:
        admitted = torch.where(to_top, admitted | POSITIVE_INF, admitted)
        admitted = torch.where(to_bottom, admitted | NEGATIVE_INF, admitted)
    elif a.output.has_inf and "saturate" in policies:
        # An infinity that no overflow made may stay one.
        admitted = admitted | (a.classes & (POSITIVE_INF | NEGATIVE_INF))
    if "nan" in policies:
        admitted = torch.where(to_top | to_bottom, admitted | NAN, admitted)

    y_class = classes_of(value)
    inside = expects_finite & (value >= low) & (value <= high)
    if "saturate" in policies:
        inside = inside | (to_top & (value == fmt.max_finite))
        inside = inside | (to_bottom & (value == -fmt.max_finite))
    if a.flush:
        normal = fmt.min_normal
        crosses = expects_finite & (a.low < normal) & (a.high > -normal)
        inside = inside | (crosses & (value == 0.0))
        if a.flushed:
            inside = inside & ~is_subnormal(value, fmt)
    if a.signed_zeros:
        zeros = (value == 0.0) & (a.reference == 0.0)
        flipped = torch.signbit(value) != torch.signbit(a.reference)
        inside = inside & ~(zeros & flipped)
    if a.exact is not None:
        inside = inside & exact_mask(y, a)
    is_finite = y_class == FINITE
    ok = torch.where(is_finite, inside, (y_class & admitted) != 0)

    outcomes = _miss_codes(y_class, admitted, expects_finite)
    outcomes = torch.where(ok, Outcome.OK, outcomes)
    unsure = a.undecided | (a.ambiguous & ~ok)
    return torch.where(unsure, Outcome.UNDECIDED, outcomes).to(torch.uint8)


# Integers of the width of the formats whose bits count up with the magnitude.
_BITS: Final = {
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def _is_plainly_inside(y: Tensor, value: Tensor, a: Acceptance) -> bool:
    """Whether every element is decided and right, for reasons that are cheap to see.

    A number of the format is not below the rounded low if it is not below the low, or
    if the low lies nearer to it than to its lower neighbour; likewise above. Whatever
    else may be admitted, or refused, is for `outcomes_of`.
    """
    narrower = str(y.dtype) != f"torch.{a.output.name}"
    # Some of what lies inside the interval may be refused.
    exceptions = a.exact is not None or a.flushed or a.signed_zeros or a.relation
    if narrower or exceptions or not value.numel():
        return False
    # Extremes of numbers: torch looks at truth values one by one.
    least, most = torch.aminmax(a.classes)
    if a.undecided.view(torch.uint8).amax() or not least == FINITE == most:
        return False
    # That of what is NaN is NaN.
    if (value - a.low).amin() >= 0 and (a.high - value).amin() >= 0:
        return True
    bits = _BITS.get(y.dtype)
    # Beyond the greatest number lies no neighbour.
    if bits is None:
        return False
    least, most = torch.aminmax(value)
    if not (-a.output.max_finite < least and most < a.output.max_finite):
        return False
    whole, up = y.contiguous().view(bits), y.sign().to(bits)  # itself beside zero

    def middle(neighbours: Tensor) -> Tensor:
        # On the near side of it, which rounds to what is even.
        far = neighbours.view(y.dtype).to(torch.float64)
        return far.lerp_(value, 0.5 + 2.0**-20)

    above = middle(whole + up).sub_(a.low).amin() >= 0
    return bool(above and middle(whole - up).sub_(a.high).amax() <= 0)


def compare_members(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Comparison]:
    """Hold all outputs of one or more members against what is admitted.

    The relation between the results, if there is one, refuses elements that the
    intervals admit; where these are range-limited they are undecided.

    Args:
        outputs: stored results by name, [members, *shape].
        accepted: of the same names and shapes.

    Raises:
        BindingError: if the operator's relation is malformed.
    """
    made = {name: compare(outputs[name], a) for name, a in accepted.items()}
    for name, mask in related_masks(outputs, accepted).items():
        outcomes = made[name].outcomes
        refused, limited = (outcomes == Outcome.OK) & ~mask, accepted[name].ambiguous
        unrelated = refused & ~limited
        missed = torch.where(unrelated, int(Outcome.VALUE), outcomes)
        missed = torch.where(refused & limited, int(Outcome.UNDECIDED), missed)
        made[name] = replace(
            made[name], outcomes=missed.to(torch.uint8), unrelated=unrelated
        )
    return made


def exact_mask(y: Tensor, a: Acceptance) -> Tensor:
    """Return where whole numbers are the very ones, or several are admitted."""
    assert a.exact is not None
    return (y.to(torch.int64) == a.exact) | (a.low < a.high)


def masks_besides(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Tensor]:
    """Return where outputs are admitted by what float64 intervals do not say.

    Args:
        outputs: stored results by name, [members, *shape].
        accepted: of the same names and shapes.
    """
    masks = dict(related_masks(outputs, accepted))
    for name, a in accepted.items():
        if a.exact is not None:
            mask = exact_mask(outputs[name], a)
            masks[name] = masks[name] & mask if name in masks else mask
    return masks


def related_masks(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> Mapping[str, Tensor]:
    """Return where the outputs that a relation judges are admitted; {} without one.

    Args:
        outputs: stored results by name, [members, *shape].
        accepted: of the same names and shapes.
    """
    relation = next((a.relation for a in accepted.values() if a.relation), None)
    return {} if relation is None else relation(outputs)


def policies_of(a: Acceptance) -> frozenset[str]:
    """Return the overflow policies in force.

    A format without Inf admits NaN and saturation unless the kernel declares
    one of them.
    """
    if not a.output.has_inf and a.overflow == "inf":
        return frozenset({"nan", "saturate"})
    return frozenset({a.overflow})


def _miss_codes(y_class: Tensor, admitted: Tensor, expects_finite: Tensor) -> Tensor:
    """Return the code each element would have if it misses."""
    infinities = POSITIVE_INF | NEGATIVE_INF
    wants_nan = ~expects_finite & ((admitted & infinities) == 0)
    wants_inf = ~expects_finite & ((admitted & infinities) != 0)
    nan_first = torch.where(wants_nan, Outcome.NAN_MISSING, Outcome.INF_MISSING)
    code = torch.where(expects_finite, int(Outcome.VALUE), nan_first)
    is_inf = (y_class & infinities) != 0
    code = torch.where(is_inf & expects_finite, Outcome.INF_UNEXPECTED, code)
    code = torch.where(is_inf & wants_nan, Outcome.NAN_MISSING, code)
    code = torch.where(is_inf & wants_inf, Outcome.INF_SIGN, code)
    return torch.where(y_class == NAN, Outcome.NAN_UNEXPECTED, code)


def _error_and_tolerance(value: Tensor, a: Acceptance) -> tuple[Tensor, Tensor]:
    both_finite = torch.isfinite(value) & ((a.classes & FINITE) != 0)
    zero = torch.zeros_like(value)
    reference = torch.where(both_finite, a.reference, zero)
    error = torch.where(both_finite, (value - reference).abs(), zero)
    half = torch.maximum(a.high - a.reference, a.reference - a.low)
    half = torch.where(both_finite & torch.isfinite(half), half, zero).clamp(min=0)
    rounding = a.output.unit * (reference.abs() + half) + a.output.min_subnormal / 2
    if a.store != "rne":  # to either neighbour: twice as far as to the nearer one
        rounding = 2 * rounding
    tolerance = torch.where(half > 0, half + rounding, zero)
    return error, tolerance


# From the comparison of one output to a map of its errors.

# Smaller ratios share this code.
_LEAST: Final = EXACT + 1


def error_map(
    output: str, made: Comparison, index: tuple[int, ...] | None = None
) -> ErrorMap | None:
    """Return the map of one output of a single case.

    Args:
        output: its name.
        made: its comparison.
        index: of the worst element; where none that misses is there, the first with
            the greatest code is the worst.

    Returns:
        None if the output has no element.
    """
    shape = tuple(made.outcomes.shape[1:])
    if not math.prod(shape):
        return None
    columns = shape[-1] if shape else 1
    codes = _codes(made)
    at = int(codes.argmax())
    # The index may be that of another call.
    if index is not None and len(index) == len(shape):
        steps = contiguous_strides(shape)
        said = sum(i * step for i, step in zip(index, steps, strict=True))
        if all(map(int.__lt__, index, shape)) and codes.flatten()[said] > WITHIN:
            at = said
    codes = codes.reshape(-1, columns)
    down, across = block_of(codes.shape[0]), block_of(columns)
    rows, wide = -(-codes.shape[0] // down), -(-columns // across)
    blocks = pad(codes, (0, wide * across - columns, 0, rows * down - codes.shape[0]))
    cells = blocks.view(rows, down, wide, across).amax((1, 3))
    whole = ErrorMap(output, shape, rows, wide, _packed(cells), divmod(at, columns))
    near, *values = (
        t.reshape(-1, columns)[[[i] for i in whole.around[0]], [*whole.around[1]]]
        for t in (codes, made.value, made.acceptance.reference)
    )
    pairs = zip(*(t.flatten().tolist() for t in values), strict=True)
    shown = [map(float, in_digits(9, *pair)) for pair in pairs]
    actual, expected = zip(*shown, strict=True)
    return replace(whole, actual=actual, expected=expected, near=_packed(near))


def _packed(codes: Tensor) -> str:
    raw = codes.to(torch.uint8).cpu().contiguous().numpy().tobytes()
    return base64.b64encode(raw).decode()


def _codes(made: Comparison) -> Tensor:
    """Return the code of every element, int32, without the member dimension."""
    outcomes, ratio = made.outcomes[0], made.ratio[0]
    exact = ratio <= 0.0
    level = torch.log2(torch.where(exact, 1.0, ratio)).mul(STEPS).add(WITHIN)
    level = level.nan_to_num(GREATEST, GREATEST, _LEAST)
    inside = level.ceil().clamp(_LEAST, WITHIN)
    outside = level.round().clamp(WITHIN + 1, GREATEST)
    codes = torch.where(exact, float(EXACT), inside)
    numbered = (outcomes == Outcome.VALUE) & ~exact
    if made.unrelated is not None:
        numbered = numbered & ~made.unrelated[0]
    missed = torch.where(numbered, outside, float(UNBOUNDED))
    codes = torch.where(outcomes >= Outcome.VALUE, missed, codes)
    codes = torch.where(outcomes == Outcome.UNDECIDED, float(UNDECIDED), codes)
    return codes.to(torch.int32)


# What became of every member of a burst: outcomes reduced on the data's device.


@dataclass(frozen=True)
class Summary:
    """One output of every member, on the data's device.

    Attributes:
        table: int64 [4, members], the rows of which the properties tell; of the
            ratios the bits.
    """

    table: Tensor

    @property
    def worst(self) -> Tensor:
        """The severest `Outcome` of any element, uint8; 0 where there is none."""
        return self.table[0].to(torch.uint8)

    @property
    def missed(self) -> Tensor:
        """Elements that violate, int64."""
        return self.table[1]

    @property
    def undecided(self) -> Tensor:
        """Elements that could not be judged, int64."""
        return self.table[2]

    @property
    def ratio(self) -> Tensor:
        """The largest |error| / tolerance, float64; 0 where there is none."""
        return self.table[3].view(torch.float64)


def summarise(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Summary]:
    """Hold all outputs of many members against what is admitted, and reduce that.

    On a GPU one kernel does it per output, without waiting for the device; the
    numbers are those of `compare`, bit for bit.

    Args:
        outputs: stored results by name, [members, *shape].
        accepted: of the same names and shapes.

    Raises:
        ValueError: if the shapes differ.
        BindingError: if the operator's relation is malformed.
    """
    if not all(is_fused(outputs[name].device) for name in accepted):
        made = compare_members(outputs, accepted)
        return {name: reduced(comparison) for name, comparison in made.items()}
    for name, a in accepted.items():
        if outputs[name].shape != a.reference.shape:
            shape = tuple(outputs[name].shape)
            raise ValueError(f"output {shape}, acceptance {a.reference.shape}")
    masks = masks_besides(outputs, accepted)
    return {n: fused(outputs[n], a, masks.get(n)) for n, a in accepted.items()}


def is_fused(device: torch.device) -> bool:
    """Whether data on a device is judged by one kernel: on GPUs, where Triton is.

    Where Triton's kernels are interpreted, none of kfuzz's own is run.
    """
    interpreted = os.environ.get("TRITON_INTERPRET", "0").lower()
    return (
        device.type == "cuda"
        and interpreted not in ("1", "true", "yes", "on")
        and _has_triton()
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def fused(y: Tensor, acceptance: Acceptance, related: Tensor | None) -> Summary:
    """Return the summary of one output by one kernel; see `comparator.fused`."""
    from kfuzz.numerics.compare_fused import judged

    if not y.numel():
        return _nothing(y)
    return Summary(judged(y, acceptance, related))


def reduced(comparison: Comparison) -> Summary:
    """Return the summary of a comparison's members."""
    outcomes = comparison.outcomes
    if not outcomes.numel():
        return _nothing(outcomes)
    rows = outcomes.flatten(1) if outcomes.dim() > 1 else outcomes.unsqueeze(-1)
    ratio = comparison.ratio.reshape(rows.shape)
    missed, undecided = rows >= Outcome.VALUE, rows == Outcome.UNDECIDED
    bits = ratio.amax(-1).view(torch.int64)
    worst = rows.amax(-1).to(torch.int64)
    return Summary(torch.stack((worst, missed.sum(-1), undecided.sum(-1), bits)))


def _nothing(like: Tensor) -> Summary:
    """Return the summary of outputs without elements."""
    table = torch.zeros((4, like.shape[0]), dtype=torch.int64, device=like.device)
    return Summary(table)
