"""Which values are simpler than others, for the reducer."""

from collections.abc import Iterator

from kfuzz.core.dtypes import number_to_bits, unpack_numbers
from kfuzz.core.recipe import TensorSpec


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
