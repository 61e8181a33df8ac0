"""Values are put into the domain of their argument: the same bits on every device.

Only exact operations, or such as IEEE 754 rounds in one way: comparisons, selections,
integers, sorting, one division. What lies in the domain stays as it is.
"""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from kfuzz.core import recipe
from kfuzz.core.dtypes import DTYPES, bits_to_number, number_to_bits
from kfuzz.numerics.formats import FORMATS, round_to

# Weights of probabilities: magnitudes up to so much, in steps of so little.
_HEAVIEST: Final = 2.0**20
_STEP: Final = 2.0**-10
_RAW: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fitted(x: Tensor, domain: str, bound: int, rank: int) -> Tensor:
    """Return values of the domain, those in it as they are.

    * A number beyond an end of an interval is mirrored at that end, and again at the
      other one until it is inside. NaN counts as 0, an infinity outside as the greatest
      finite number.
    * Probabilities are whole multiples of 2^-10 up to 2^20, the magnitudes, over their
      sum; all equal where that is 0.
    * Integers that stand twice become the next ones up that are free.
    * Offsets are sorted, 0 and the whole put at the ends; starts and ends of spans are
      sorted together.
    * A mask of padding has as many true elements in a row, in front; blocks end where
      the element right of the diagonal is false.

    Args:
        x: the values, [*items, *shape].
        domain: as text, see `kfuzz.core.recipe`.
        bound: of indices, what they stay below; of offsets the whole.
        rank: of the shape.
    """
    parts = recipe.parsed(domain)
    if not domain or not x.numel() or rank < parts.rank:
        return x
    if parts.interval is not None:
        x = _inside(x, parts.interval)
    if parts.axis:
        x = _shares(x, parts.axis)
    for word in parts.words:
        if word == recipe.THROUGHOUT:
            flat = x.reshape(*x.shape[: x.dim() - rank], -1)
            x = distinct_below(flat, bound).reshape(x.shape)
        else:
            x = _BY_WORD[word](x, bound)
    return x


def holds(x: Tensor, domain: str, bound: int, rank: int) -> bool:
    """Whether values lie in a domain; see `fitted`."""
    parts = recipe.parsed(domain)
    if not domain or not x.numel() or rank < parts.rank:
        return True
    if parts.axis:
        return is_shares(x, parts.axis)
    made = fitted(x, domain, bound, rank)
    raw = _RAW[x.element_size()]
    return torch.equal(made.contiguous().view(raw), x.contiguous().view(raw))


def _inside(x: Tensor, interval: recipe.Interval) -> Tensor:
    dtype = str(x.dtype).removeprefix("torch.")
    if not x.is_floating_point():
        return _integers_inside(x, interval)
    low, high = ends_of(interval, dtype)
    fmt, wide = FORMATS[dtype], x.to(torch.float64)
    inside = (wide >= low) & (wide <= high)
    top = fmt.max_finite
    finite = torch.nan_to_num(wide, nan=0.0, posinf=top, neginf=-top)
    made = folded(finite, max(low, -top), min(high, top), top)
    made = round_to(made, fmt).clamp(max(low, -top), min(high, top)).to(x.dtype)
    # As integers: float8 has no operators.
    raw = _RAW[x.element_size()]
    chosen = torch.where(inside, x.contiguous().view(raw), made.view(raw))
    return chosen.view(x.dtype)


def folded(x: Tensor, low: float, high: float, top: float) -> Tensor:
    """Return finite float64 numbers mirrored at the ends until they lie inside.

    Args:
        x: the numbers.
        low: the lower end.
        high: the upper end.
        top: ends as far away as this, or farther, are none.
    """
    if low > -top and high < top:
        width = high - low
        if not width > 0:
            return torch.full_like(x, low)
        far = torch.fmod((x - low).abs(), 2 * width)
        far = torch.nan_to_num(far)
        made = low + torch.minimum(far, 2 * width - far)
        return torch.where((x < low) | (x > high), made, x)
    x = torch.where(x < low, low + (low - x), x) if low > -top else x
    return torch.where(x > high, high - (x - high), x) if high < top else x


def mirrored(x: Tensor, low: float | None, high: float | None) -> Tensor:
    """Return numbers mirrored at ends that belong to what is left, NaN as it is."""
    least = -math.inf if low is None else low
    most = math.inf if high is None else high
    made = folded(x.to(torch.float64), least, most, math.inf)
    return made.to(x.dtype).clamp(low, high)


def ends_of(interval: recipe.Interval, dtype: str) -> tuple[float, float]:
    """Return the least and the greatest number of a format in an interval.

    Beside an end of 0 that is left out it is the least normal number. The first is
    greater than the second where no number is inside.
    """
    fmt = FORMATS[dtype]
    numbers = torch.tensor([interval.low, interval.high], dtype=torch.float64)
    low = round_to(numbers, fmt, "ru")[0].item()
    high = round_to(numbers, fmt, "rd")[1].item()
    if interval.above and low == interval.low:
        low = _neighbour(low, dtype, 1)
    if interval.below and high == interval.high:
        high = _neighbour(high, dtype, -1)
    return low, high


def _neighbour(number: float, dtype: str, step: int) -> float:
    """Return the next number up (1) or down (-1); beside 0 the least normal one."""
    fmt = FORMATS[dtype]
    if not number:
        return step * fmt.min_normal
    outwards = (number > 0) == (step > 0)
    if abs(number) == float("inf"):
        return number if outwards else -step * fmt.max_finite
    bits = number_to_bits(number, dtype)
    return float(bits_to_number(bits + (1 if outwards else -1), dtype))


def _integers_inside(x: Tensor, interval: recipe.Interval) -> Tensor:
    limits = torch.iinfo(x.dtype)
    low, high = whole_ends(interval, str(x.dtype).removeprefix("torch."))
    wide = x.to(torch.int64)
    if low == limits.min and high == limits.max:
        return x
    if low == limits.min or high == limits.max:
        end = high if low == limits.min else low
        outside = wide > end if low == limits.min else wide < end
        wide = torch.where(outside, (2 * end - wide).clamp(low, high), wide)
        return wide.to(x.dtype)
    inside = (wide >= low) & (wide <= high)
    return torch.where(inside, wide, low + (wide - low) % (high - low + 1)).to(x.dtype)


def whole_ends(interval: recipe.Interval, dtype: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a data type in an interval."""
    limits = torch.iinfo(getattr(torch, dtype))
    low, high = limits.min, limits.max
    if interval.low > low:
        low = -int(-interval.low // 1) + (interval.above and interval.low % 1 == 0)
    if interval.high < high:
        high = int(interval.high // 1) - (interval.below and interval.high % 1 == 0)
    return low, high


def _shares(x: Tensor, axis: int) -> Tensor:
    wide = x.to(torch.float64).abs()
    wide = torch.nan_to_num(wide, posinf=_HEAVIEST).clamp(max=_HEAVIEST)
    weights = torch.floor(wide / _STEP).to(torch.int64)
    total = weights.sum(axis, keepdim=True)
    weights = torch.where(total == 0, 1, weights)
    total = torch.where(total == 0, x.shape[axis], total)
    made = weights.to(torch.float64) / total.to(torch.float64)
    return round_to(made, FORMATS[str(x.dtype).removeprefix("torch.")]).to(x.dtype)


def is_shares(x: Tensor, axis: int) -> bool:
    """Whether numbers are not negative and sum to 1 up to their own rounding."""
    fmt = FORMATS[str(x.dtype).removeprefix("torch.")]
    wide = x.to(torch.float64)
    room = 2 * fmt.unit + x.shape[axis] * fmt.min_subnormal
    near = (wide.sum(axis) - 1).abs() <= room
    return bool((wide >= 0).all()) and bool(near.all())


def distinct_below(x: Tensor, bound: int) -> Tensor:
    """Return integers of which none stands twice along the last axis, all below."""
    n = x.shape[-1]
    order = x.argsort(dim=-1, stable=True)
    step = torch.arange(n, device=x.device)
    raised = x.gather(-1, order).to(torch.int64).clamp(min=0) - step
    raised = raised.cummax(-1).values + step
    raised = torch.minimum(raised, bound - n + step)
    return torch.empty_like(x).scatter_(-1, order, raised.to(x.dtype))


def _offsets(x: Tensor, bound: int) -> Tensor:
    made = x.clamp(0, bound).sort(-1).values
    made[..., -1] = bound
    made[..., 0] = 0
    return made


def _spans(x: Tensor, bound: int) -> Tensor:
    return x.clamp(0, bound).flatten(-2).sort(-1).values.reshape(x.shape)


def _causal(x: Tensor, bound: int) -> Tensor:
    return torch.ones_like(x).tril()


def _padding(x: Tensor, bound: int) -> Tensor:
    count = x.sum(-1, keepdim=True)
    return torch.arange(x.shape[-1], device=x.device).expand(x.shape) < count


def _blocks(x: Tensor, bound: int) -> Tensor:
    rows, columns = x.shape[-2:]
    n = min(rows, columns)
    ends = ~x.diagonal(1, -2, -1)[..., : n - 1]
    number = torch.zeros((*x.shape[:-2], max(rows, columns)), dtype=torch.int64,
                         device=x.device)  # fmt: skip
    number[..., 1:n] = ends.cumsum(-1)
    number[..., n:] = number[..., n - 1 : n]
    return number[..., :rows, None] == number[..., None, :columns]


_BY_WORD: Final[dict[str, Callable[[Tensor, int], Tensor]]] = {
    recipe.RISING: lambda x, bound: x.sort(-1).values,
    recipe.DISTINCT: distinct_below,
    recipe.OFFSETS: _offsets,
    recipe.SPANS: _spans,
    "causal": _causal,
    "padding": _padding,
    "blocks": _blocks,
}


def has_numbers(interval: recipe.Interval, dtype: str) -> bool:
    """Whether a data type has a number in an interval."""
    ends = ends_of if DTYPES[dtype].kind == "float" else whole_ends
    low, high = ends(interval, dtype)
    return low <= high
