"""The comparator gives the same bits on the device as on the host."""

import pytest
import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import Outcome, compare
from kfuzz.numerics.formats import FORMATS, round_to

pytestmark = pytest.mark.gpu
COUNT = 200_000


def some_values(generator: torch.Generator) -> Tensor:
    """Return float64 values of 300 binades, with specials among them."""
    bits = torch.randint(-(1 << 62), 1 << 62, (COUNT,), generator=generator)
    mantissa = torch.rand(COUNT, dtype=torch.float64, generator=generator) + 1
    exponent = torch.randint(-150, 150, (COUNT,), generator=generator)
    values = mantissa * torch.exp2(exponent.double()) * torch.sign(bits.double())
    specials = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    at = torch.randint(0, COUNT, (COUNT // 10,), generator=generator)
    values[at] = specials.double()[at % 5]
    return values


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("overflow", ["inf", "nan", "saturate"])
@pytest.mark.parametrize("store", ["rne", "rz"])
def test_outcomes_have_equal_bits(name: str, overflow: str, store: str) -> None:
    generator = torch.Generator().manual_seed(7)
    fmt = FORMATS[name]
    reference = some_values(generator)[None]
    width = (reference.abs() * 4 * fmt.unit).nan_to_num(0.0, 0.0, 0.0)
    pick = torch.randint(0, 16, (1, COUNT), generator=generator)
    acceptance = Acceptance(
        reference=reference,
        low=reference.nan_to_num(0.0, 0.0, 0.0) - width,
        high=reference.nan_to_num(0.0, 0.0, 0.0) + width,
        classes=pick.to(torch.uint8),
        undecided=pick == 3,
        ambiguous=pick % 5 == 0,
        output=fmt,
        overflow=overflow,
        store=store,
        flush=store == "rne",
    )
    # Wide enough to leave the interval, whose rounded ends may lie an ulp outside.
    spread = 16 * fmt.unit
    noise = torch.rand(1, COUNT, dtype=torch.float64, generator=generator) - 0.5
    rounded = round_to(reference * (1 + spread * noise), fmt)
    if not fmt.has_inf:  # what torch's cast makes of an infinity has changed
        rounded = torch.where(rounded.isinf(), torch.nan, rounded)
    y = rounded.to(fmt.dtype)
    host = compare(y, acceptance)
    device = compare(y.cuda(), acceptance.mapped(Tensor.cuda))
    for field in ("outcomes", "error", "tolerance", "low", "high"):
        ours, theirs = getattr(host, field), getattr(device, field).cpu()
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        assert bool(same.all()), field
    common = {Outcome.OK, Outcome.UNDECIDED, Outcome.VALUE, Outcome.NAN_MISSING}
    assert common <= set(host.outcomes.unique().tolist())
