"""Passes of the reducer over values: whole tensors, runs, then single elements.

Which values are simpler than others stands at the end.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
    unpack_numbers,
)
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.engine.reduce.descent import Descent

# Above this many elements only whole blocks are simplified, not single values.
SINGLES: Final = 512


def simplify_values(descent: Descent) -> None:
    """Simplify the values of each tensor, whole blocks before single ones."""
    for name in descent.best.tensors:
        descent.take_first(_uniform(descent.best, name))
        _drop_specials(descent, name)
        _zero_blocks(descent, name)
        if descent.best.tensors[name].numel <= SINGLES:
            _simplify_singles(descent, name)


def with_patterns(case: Case, name: str, patterns: list[int]) -> Case:
    """Return the case with other elements in one tensor, given by their bits."""
    spec = case.tensors[name]
    made = replace(spec, values=pack_bits(patterns, spec.dtype))
    return case.with_tensor(name, made)


def patterns_of(case: Case, name: str) -> list[int]:
    """Return the bits of one tensor's elements."""
    spec = case.tensors[name]
    assert spec.values is not None
    return unpack_bits(spec.values, spec.dtype)


def with_digits(case: Case, fraction: float, *, apart: bool) -> Case | None:
    """Return the case with its floats multiplied; None if that changes none.

    Zeros and ones stay, which mask the others.

    Args:
        case: a pinned case.
        fraction: what to multiply with.
        apart: whether equal values come to differ in their last digits.
    """
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if DTYPES[spec.dtype].kind == "float":
            last = 4 * 2.0 ** -DTYPES[spec.dtype].mantissa_bits if apart else 0.0
            patterns = patterns_of(case, name)
            for i, value in enumerate(numbers(spec)):
                if complexity(value) > complexity(-1.0):
                    made = value * fraction * (1 + i % 8 * last)
                    patterns[i] = rounded(made, spec.dtype, otherwise=patterns[i])
            tensors[name] = replace(spec, values=pack_bits(patterns, spec.dtype))
    filled = replace(case, tensors=tensors)
    return None if filled == case else filled


def rounded(value: float, dtype: str, *, otherwise: int) -> int:
    """Return the bits of a value with as many digits as the dtype holds, cut off.

    Args:
        value: any value.
        dtype: a floating one.
        otherwise: the bits to return where the value is out of the dtype's range.
    """
    if value - value != 0.0 or not value:
        return otherwise
    digits = DTYPES[dtype].mantissa_bits + 1
    fraction, exponent = math.frexp(value)
    cut = math.ldexp(int(math.ldexp(fraction, digits)), exponent - digits)
    try:
        return number_to_bits(cut, dtype)
    except (ValueError, OverflowError):
        return otherwise


def _uniform(case: Case, name: str) -> Iterator[Case]:
    """Yield all zeros, then all ones and all minus ones."""
    spec = case.tensors[name]
    hardest = max(map(complexity, numbers(spec)), default=0.0)
    for value in (0.0, 1.0, -1.0):
        unsigned = DTYPES[spec.dtype].kind in ("bool", "uint")
        if hardest > complexity(value) and not (value < 0 and unsigned):
            patterns = [number_to_bits(value, spec.dtype)] * spec.numel
            yield with_patterns(case, name, patterns)


def _drop_specials(descent: Descent, name: str) -> None:
    """Replace NaNs and infinities, all of them, then one by one."""
    for value in (0.0, 1.0):
        spec = descent.best.tensors[name]
        plain = number_to_bits(value, spec.dtype)
        special = [i for i, n in enumerate(numbers(spec)) if n - n != 0.0]
        if not special:
            return

        def replaced(case: Case, places: list[int], plain: int = plain) -> Case:
            patterns = patterns_of(case, name)
            for i in places:
                patterns[i] = plain
            return with_patterns(case, name, patterns)

        if not descent.take(replaced(descent.best, special)):
            descent.take_each(([i] for i in special[:SINGLES]), replaced)


def _zero_blocks(descent: Descent, name: str) -> None:
    """Zero runs of elements, halving the run: the non-zero set shrinks."""
    count = descent.best.tensors[name].numel
    block = count // 2
    while block >= max(count // SINGLES, 1):

        def zeroed(case: Case, start: int, block: int = block) -> Case | None:
            patterns = patterns_of(case, name)
            run = patterns[start : start + block]
            patterns[start : start + block] = [0] * len(run)
            return with_patterns(case, name, patterns) if any(run) else None

        descent.take_each(range(0, count, block), zeroed)
        block //= 2


def _simplify_singles(descent: Descent, name: str) -> None:
    """Replace single values by simpler ones, equal values together first."""
    groups: dict[int, list[int]] = {}
    for i, pattern in enumerate(patterns_of(descent.best, name)):
        groups.setdefault(pattern, []).append(i)
    items: list[list[int]] = []
    for places in groups.values():
        items.append(places)
        items += [[i] for i in places] if len(places) > 1 else []
    descent.take_first_of_each(items, partial(_simpler, name))


def _simpler(name: str, case: Case, places: list[int]) -> Iterator[Case]:
    """Yield the case with equal elements replaced by a simpler value."""
    spec = case.tensors[name]
    pattern = patterns_of(case, name)[places[0]]
    value = float(bits_to_number(pattern, spec.dtype))
    for simpler in simpler_values(value, spec.dtype):
        patterns = patterns_of(case, name)
        for i in places:
            patterns[i] = simpler
        yield with_patterns(case, name, patterns)


def numbers(spec: TensorSpec) -> list[float]:
    """Return the pinned values of a tensor as Python floats, in C order."""
    assert spec.values is not None
    return unpack_numbers(spec.values, spec.dtype)


def simpler_values(value: float, dtype: str) -> Iterator[int]:
    """Yield bits of simpler values than the given one, the simplest first."""
    candidates = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0]
    if value - value == 0.0:
        magnitude = abs(value)
        sign = -1.0 if value < 0 else 1.0
        candidates.append(magnitude)
        if magnitude >= 1:
            candidates.append(sign * float(int(magnitude)))
        for power in _nearby_powers(magnitude):
            candidates += [sign * power, sign * (power + 1)]
    else:
        candidates += [float("inf"), float("nan")]
    seen = set()
    for candidate in candidates:
        if complexity(candidate) >= complexity(value):
            continue
        try:
            bits = number_to_bits(candidate, dtype)
        except (ValueError, OverflowError):
            continue
        if bits not in seen:
            seen.add(bits)
            yield bits


def _nearby_powers(magnitude: float) -> list[float]:
    if not 0 < magnitude < 2.0**1000:
        return []
    power = 1.0
    while power * 2 <= magnitude:
        power *= 2
    while power > magnitude:
        power /= 2
    # Small powers first: 2^4, 2^8 …, up to the value's own.
    ladder = [2.0**k for k in (1, 2, 4, 8, 12, 16, 24) if 2.0**k < power]
    return [*ladder, power]


def complexity(value: float) -> float:
    """Rank values: 0, 1, -1, small integers, powers of two, the rest, specials."""
    if value != value:
        return 1e9
    if value in (float("inf"), float("-inf")):
        return 1e8 + (value < 0)
    fixed = {0.0: 0.0, 1.0: 1.0, -1.0: 2.0, 2.0: 3.0, -2.0: 4.0, 3.0: 5.0}
    if value in fixed:
        return fixed[value]
    negative = 0.5 if value < 0 else 0.0
    mantissa, exponent = _odd_part(abs(value))
    return 10 + 100 * (mantissa.bit_length() - 1) + abs(exponent) + negative


def _odd_part(value: float) -> tuple[int, int]:
    numerator, denominator = value.as_integer_ratio()
    exponent = 1 - denominator.bit_length()
    while numerator % 2 == 0:
        numerator //= 2
        exponent += 1
    return numerator, exponent
