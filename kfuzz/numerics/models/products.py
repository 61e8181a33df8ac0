"""Products of many factors: value, and what any order of them can do."""

import torch
from torch import Tensor

from kfuzz.numerics.formats import lowest_bit_exponent, power_of_two

# Beyond every format's range, and within float64's.
_FAR = 1000


def product(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the product of x along a dimension, and what bounds partial ones.

    Every partial product of every order lies in [2**shrink, 2**grow] by magnitude.

    Args:
        x: float64, finite.
        dim: the dimension, negative.

    Returns:
        The product, 1 where there is no factor; magnitudes beyond 2**1000 or below
        2**-1000 become these. `grow`, the log2 of the product of the factors above 1,
        and `shrink`, that of those below 1, zeros left out. The product of the odd
        parts of the factors: what significand an exact partial product needs at most.
    """
    x = x.movedim(dim, -1)
    lowest = torch.where(x == 0, 0, lowest_bit_exponent(x))
    odd = torch.where(x == 0, 1.0, x.abs() * power_of_two(-lowest))
    bits = torch.where(x == 0, 0.0, torch.log2(x.abs()))
    mantissa, small = torch.frexp(x)
    exponent = small.to(torch.int64)
    if x.shape[-1] == 0:
        mantissa, exponent = x.new_ones((*x.shape[:-1], 1)), exponent.sum(-1, True)
    # Scaled after each step: float64's own range is left by a few large factors.
    while mantissa.shape[-1] > 1:
        if mantissa.shape[-1] % 2:
            mantissa = torch.nn.functional.pad(mantissa, (0, 1), value=1.0)
            exponent = torch.nn.functional.pad(exponent, (0, 1))
        mantissa, shift = torch.frexp(mantissa[..., ::2] * mantissa[..., 1::2])
        exponent = exponent[..., ::2] + exponent[..., 1::2] + shift
    scale = power_of_two(torch.clamp(exponent[..., 0], -_FAR, _FAR))
    return (
        mantissa[..., 0] * scale,
        bits.clamp(min=0).sum(-1),
        bits.clamp(max=0).sum(-1),
        odd.prod(-1),
    )
