"""Each operation on bfloat16 and 8-bit floats, against float64 rounded once."""

import sys

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.execution.interpreter import watch as interpreter_watch
from kfuzz.execution.interpreter.watch import (
    Launches,
    interpreting,
    is_interpreter_failure,
    watch,
)
from kfuzz.numerics.formats import FORMATS, format_of, round_to
from tests.helpers import low_precision_kernels as kernels
from tests.helpers.low_precision_data import (
    BF16,
    CHUNK,
    EIGHT_BITS,
    difficult,
    every,
    exact,
    pairs,
)

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
# Triton's language changes: what a kernel means is what its release compiles it to.
RELEASE = tuple(map(int, triton.__version__.split(".")[:2]))


def run(
    kernel, x: Tensor, y: Tensor, out: torch.dtype, *, z: Tensor | None = None
) -> Tensor:
    results = []
    with watch() as seen:
        for start in range(0, x.numel(), CHUNK):
            piece = slice(start, start + CHUNK)
            result = torch.zeros(x[piece].numel(), dtype=out)
            others = [t[piece].contiguous() for t in (x, y, x if z is None else z)]
            kernel[(1,)](*others, result, N=result.numel())
            results.append(result)
    assert seen.unreliable == ""
    assert seen.programs == len(results)
    return torch.cat(results)


def watched(kernel, *args: object, **constants: object) -> Launches:
    with watch() as seen:
        kernel[(1,)](*args, **constants)
    return seen


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float64, as a GPU does: 8 bits saturate."""
    fmt = format_of(dtype)
    values = round_to(values, fmt)
    if dtype in EIGHT_BITS:
        values = values.clamp(-fmt.max_finite, fmt.max_finite)
    return values


def same(found: Tensor, expected: Tensor) -> None:
    """Assert equal values, NaN for NaN, and equal signs of zero."""
    found = exact(found)
    wrong = ~((found == expected) | (found.isnan() & expected.isnan()))
    wrong |= (expected == 0) & (found.signbit() != expected.signbit())
    at = wrong.nonzero().flatten()[:5]
    assert not wrong.any(), (int(wrong.sum()), at, found[at], expected[at])


@pytest.mark.parametrize("target", [torch.float32, torch.float16, BF16, *EIGHT_BITS])
def test_bfloat16_is_cast(target: torch.dtype) -> None:
    x = every(BF16)
    same(run(kernels.copy, x, x, target), rounded(exact(x), target))


@pytest.mark.parametrize("source", EIGHT_BITS)
@pytest.mark.parametrize("target", [torch.float32, torch.float16, BF16])
def test_8_bits_are_widened(source: torch.dtype, target: torch.dtype) -> None:
    x = every(source)
    same(run(kernels.copy, x, x, target), exact(x))


@pytest.mark.parametrize("target", [BF16, *EIGHT_BITS])
def test_float32_is_rounded_to_nearest_even(target: torch.dtype) -> None:
    x = difficult(torch.float32)
    same(run(kernels.copy, x, x, target), rounded(x.double(), target))


def test_float64_is_rounded_to_bfloat16_once() -> None:
    x = difficult(torch.float64)
    same(run(kernels.copy, x, x, BF16), rounded(x, BF16))


@pytest.mark.parametrize("target", [torch.float16, BF16])
def test_float32_is_truncated_on_request(target: torch.dtype) -> None:
    x = difficult(torch.float32)
    expected = round_to(x.double(), format_of(target), "rz")
    same(run(kernels.copy_rtz, x, x, target), expected)


def test_integers_are_rounded_once() -> None:
    # 2**24 + 2**16 + 1 rounds up, but through float32 it is a tie that rounds down.
    near_ties = [2**24 + 2**16 + 1, -(2**24) - 2**16 - 1, 2**24 + 2**16, 3, 0, -7]
    small = torch.tensor([*near_ties, 2**31 - 1, -(2**31)], dtype=torch.int32)
    same(run(kernels.copy, small, small, BF16), rounded(small.double(), BF16))
    big = torch.tensor([2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1, 2**53])
    expected = [2.0**62 + 2.0**55, 2.0**62, -(2.0**62) - 2.0**55, 2.0**53]
    found = run(kernels.copy, big, big, BF16)
    same(found, torch.tensor(expected, dtype=torch.float64))


OPERATIONS = {
    kernels.add: torch.add,
    kernels.sub: torch.sub,
    kernels.mul: torch.mul,
    kernels.add_as_float32: torch.add,
    kernels.maximum: torch.fmax,
    kernels.minimum: torch.fmin,
    kernels.maximum_nan: torch.maximum,
}


@pytest.mark.parametrize("kernel", OPERATIONS, ids=lambda kernel: kernel.__name__)
def test_bfloat16_operation_is_rounded_once(kernel) -> None:
    x, y = pairs(BF16)
    expected = OPERATIONS[kernel](exact(x), exact(y))
    if kernel in (kernels.maximum, kernels.minimum, kernels.maximum_nan):
        # -0 < +0 (PTX), which float64 comparisons do not see; beside a NaN the
        # other operand is the result (seen compiled on an H200).
        left = torch.where(exact(x).isnan(), exact(y), exact(x)).signbit()
        right = torch.where(exact(y).isnan(), exact(x), exact(y)).signbit()
        negative = left | right if kernel is kernels.minimum else left & right
        zero = torch.where(negative, -0.0, 0.0).double()
        expected = torch.where(expected == 0, zero, expected)
    same(run(kernel, x, y, BF16), rounded(expected, BF16))


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_8_bits_saturate_after_arithmetic_in_float32(dtype: torch.dtype) -> None:
    x, y = pairs(dtype)
    expected = rounded(exact(x) + exact(y), dtype)
    same(run(kernels.add_as_float32, x, y, dtype), expected)


def test_two_8_bit_formats_meet_in_float16() -> None:
    x, y = pairs(EIGHT_BITS[0])[0], pairs(EIGHT_BITS[1])[1]
    expected = round_to(exact(x) + exact(y), FORMATS["float16"])
    same(run(kernels.add, x, y, torch.float16), expected)


@pytest.mark.parametrize("dtype", [BF16, *EIGHT_BITS])
def test_selection_and_absolute_value_keep_bits(dtype: torch.dtype) -> None:
    x, y = pairs(dtype)
    bits = torch.int16 if dtype == BF16 else torch.int8
    lanes = (torch.arange(x.numel()) % CHUNK) % 3 == 0
    chosen = torch.where(lanes, x.view(bits), y.view(bits))
    assert torch.equal(run(kernels.where, x, y, dtype).view(bits), chosen)
    cleared = x.view(bits) & torch.iinfo(bits).max
    assert torch.equal(run(kernels.absolute, x, y, dtype).view(bits), cleared)
    assert torch.equal(run(kernels.copy, x, y, dtype).view(bits), x.view(bits))


@pytest.mark.skipif(RELEASE < (3, 8), reason="-x is compiled as 0 - x")
def test_negation_flips_the_sign_bit() -> None:
    x = every(BF16)
    expected = x.view(torch.int16) ^ -(1 << 15)
    assert torch.equal(run(kernels.negative, x, x, BF16).view(torch.int16), expected)


@pytest.mark.skipif(RELEASE >= (3, 8), reason="-x flips the sign bit")
def test_negation_subtracts_from_zero() -> None:
    x = every(BF16)
    same(run(kernels.negative, x, x, BF16), 0.0 - exact(x))


def test_comparisons_order_values() -> None:
    x, y = pairs(BF16)
    a, b = exact(x), exact(y)
    assert torch.equal(run(kernels.less, x, y, torch.bool), a < b)
    assert torch.equal(run(kernels.equal, x, y, torch.bool), a == b)
    assert torch.equal(run(kernels.not_equal, x, y, torch.bool), a != b)


def test_fused_multiply_add_is_rounded_once() -> None:
    x, y = pairs(BF16)
    z = x.flip(0)
    product, addend = exact(x) * exact(y), exact(z)
    total = product + addend
    # Where float64 holds the sum, or all but what decides no rounding to 8 bits.
    decided = (total - product == addend) & (total - addend == product)
    assert decided.sum() > 10_000
    same(run(kernels.fma, x, y, BF16, z=z)[decided], rounded(total, BF16)[decided])


def test_fused_multiply_add_sees_beyond_float64() -> None:
    x = torch.tensor([1.5, 1.5, 1.5, -1.5]).to(BF16)
    y = torch.tensor([1 + 2.0**-7] * 4).to(BF16)
    # The product 1.51171875 is a tie; 2**-80, lost in float64, decides it.
    z = torch.tensor([2.0**-80, -(2.0**-80), 0.0, 2.0**-80]).to(BF16)
    found = run(kernels.fma, x, y, BF16, z=z)
    assert found.tolist() == [1.515625, 1.5078125, 1.515625, -1.5078125]


def test_clamp_lies_between_its_bounds() -> None:
    x, _ = pairs(BF16)
    low, high = torch.full_like(x, -2.0), torch.full_like(x, 3.0)
    expected = torch.where(exact(x).isnan(), -2.0, exact(x).clamp(-2, 3))
    same(run(kernels.clamp, x, low, BF16, z=high), expected)


def test_scalars_become_bfloat16_as_triton_makes_them() -> None:
    x = every(BF16)
    third = exact(torch.tensor(0.3).to(BF16))
    same(run(kernels.times_scalar, x, x, BF16), rounded(exact(x) * third, BF16))
    ones = torch.ones(64, dtype=BF16)
    assert run(kernels.full, ones, ones, BF16).tolist() == [0.10009765625] * 64
    # Triton reads constants of bfloat16 with six decimals.
    assert run(kernels.plus_tiny_scalar, ones, ones, BF16).tolist() == [0.0] * 64


@pytest.mark.parametrize("dtype", [BF16, *EIGHT_BITS])
def test_masked_lanes_load_the_other_value(dtype: torch.dtype) -> None:
    x = torch.full((64,), 2.0).to(dtype)
    lanes = torch.arange(64)
    other = rounded(torch.tensor(-3.14).double(), dtype)
    expected = torch.where(lanes % 5 == 0, other, 2.0)
    same(run(kernels.masked, x, x, dtype), torch.where(lanes % 7 == 0, 0.0, expected))


def test_sums_round_in_a_tree() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 32, generator=generator).to(BF16)
    expected = exact(x)
    while expected.shape[1] > 1:
        half = expected.shape[1] // 2
        expected = rounded(expected[:, :half] + expected[:, half:], BF16)
    found = run(kernels.sum_rows, x.flatten(), x.flatten(), BF16)
    same(found[:64], expected.flatten())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_integer_sums_wrap(dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (4, 1024), dtype=torch.int32).to(dtype)
    made = torch.empty(4, dtype=dtype)
    kernels.sum_all[(4,)](x, made, N=1024, T=getattr(tl, str(dtype)[6:]))
    assert torch.equal(made, x.sum(1).to(dtype))


def test_maxima_of_rows_see_negative_values_and_skip_nan() -> None:
    x = -torch.rand(64, 32, generator=torch.Generator().manual_seed(3)).to(BF16) - 1
    found = run(kernels.argmax_rows, x.flatten(), x.flatten(), torch.int32)[:64]
    assert torch.equal(found.long(), exact(x).argmax(dim=1))
    x[:, 5] = float("nan")
    rows = exact(x).nan_to_num(nan=-9.0)
    flat = x.flatten()
    for kernel in (kernels.max_rows, kernels.reduce_rows):
        same(run(kernel, flat, flat, BF16)[:64], rows.amax(dim=1))


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
@pytest.mark.parametrize("kernel", [kernels.argmax_rows, kernels.argmin_rows_fast])
def test_an_index_beside_nan_is_reported(kernel, dtype: torch.dtype) -> None:
    x = torch.ones(64, dtype=dtype)
    x[7] = float("nan")
    seen = watched(kernel, x, x, x, torch.zeros(2, dtype=torch.int32), N=64)
    assert seen.unreliable.startswith("argmax and argmin of NaN depend on ")


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_maxima_of_rows_of_8_bits(dtype: torch.dtype) -> None:
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = run(kernels.max_rows, x.flatten(), x.flatten(), dtype)[:64]
    same(found, exact(x).amax(dim=1))


def test_scans_round_as_the_release_does() -> None:
    x = torch.tensor([256.0, 1, 1, 1] + [0.0] * 28).repeat(2).to(BF16)
    found = run(kernels.cumsum_rows, x, x, BF16)
    if RELEASE < (3, 9):  # in float32, rounded by the store: 259 is a tie
        assert found[:4].tolist() == [256.0, 256.0, 258.0, 260.0]
    else:
        # 256 + 1 is 256; lane 2 adds 1 + 1 to 256, lane 3 adds 1 + 1 to 256 + 1.
        assert found[:4].tolist() == [256.0, 256.0, 258.0, 258.0]


@pytest.mark.parametrize("dtype", [BF16, *EIGHT_BITS])
def test_dot_accumulates_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = (
        torch.randint(-8, 9, (32, 32), generator=generator).float().to(dtype)
        for _ in range(2)
    )
    found = run(kernels.dot, x.flatten(), y.flatten(), torch.float32)
    same(found.view(32, 32), exact(x) @ exact(y))


def test_atomic_additions_to_one_address_all_count() -> None:
    ones = torch.ones(64, dtype=BF16)
    found = run(kernels.atomic_add, ones, ones, BF16)
    lanes = [i % 4 for i in range(64) if i % 5]
    assert found[:4].tolist() == [float(lanes.count(k)) for k in range(4)]


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize(
    "kernel",
    [kernels.add, kernels.maximum, kernels.less, kernels.negative, kernels.sum_rows],
    ids=lambda kernel: kernel.__name__,
)
def test_what_triton_does_not_compile_is_reported(kernel, dtype: torch.dtype) -> None:
    x = torch.ones(64).to(dtype)
    out = torch.zeros(64, dtype=torch.bool if kernel is kernels.less else dtype)
    seen = watched(kernel, x, x, x, out, N=64)
    assert seen.unreliable.startswith("Triton has no GPU code for ")


@triton.jit
def to_fp8e5b16(x, out):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i).to(tl.float8e5b16).to(tl.float32))


def test_other_8_bit_formats_are_reported() -> None:
    x = torch.ones(4)
    if RELEASE < (3, 8):  # the interpreter itself refuses
        with pytest.raises(Exception, match="fail to convert fp8e5b16") as caught:
            watched(to_fp8e5b16, x, torch.zeros(4))
        assert is_interpreter_failure(caught.value)
    else:
        seen = watched(to_fp8e5b16, x, torch.zeros(4))
        assert seen.unreliable == "Triton's interpreter computes fp8e5b16 wrongly"


@triton.jit
def unset(x, out, SET: tl.constexpr):
    i = tl.arange(0, 4)
    if SET:
        shift = 1.0
    tl.store(out + i, tl.load(x + i) + shift)


@triton.jit
def optional(x, bias, out):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i) + tl.load(bias + i))


def test_names_without_a_value_and_absent_pointers_are_the_kernels_own_fault() -> None:
    with pytest.raises(Exception, match="shift") as caught:
        watched(unset, torch.ones(4), torch.zeros(4), SET=False)
    assert not is_interpreter_failure(caught.value)
    with pytest.raises(Exception, match="NoneType") as caught:
        watched(optional, torch.ones(4), None, torch.zeros(4))
    assert not is_interpreter_failure(caught.value)


def test_triton_is_untouched_outside_a_watch() -> None:
    import triton.runtime.autotuner as tuner

    module = sys.modules["triton.runtime.interpreter"]
    owners = (
        module, module.InterpreterBuilder, module.interpreter_builder,
        module.TensorHandle, module.ReduceOps, module.ScanOps, tuner.Autotuner,
        module.GridExecutor,
    )  # fmt: skip
    before = [dict(vars(owner)) for owner in owners]
    with watch():
        assert [dict(vars(owner)) for owner in owners] != before
        with watch():
            pass
        assert [dict(vars(owner)) for owner in owners] != before
    assert [dict(vars(owner)) for owner in owners] == before
    with pytest.raises(ZeroDivisionError), watch():
        raise ZeroDivisionError
    assert [dict(vars(owner)) for owner in owners] == before


def test_where_nobody_else_uses_triton_it_stays_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = sys.modules["triton.runtime.interpreter"].InterpreterBuilder
    before = dict(vars(builder))
    monkeypatch.setattr(interpreter_watch, "_stays", False)  # and back, in the end
    interpreter_watch.stay_corrected()
    with watch():
        corrected = dict(vars(builder))
    assert corrected != before
    assert dict(vars(builder)) == corrected
    with watch():
        assert dict(vars(builder)) == corrected
    monkeypatch.undo()
    with watch():
        assert dict(vars(builder)) == corrected
    assert dict(vars(builder)) == before


@triton.jit
def scaled_product(a, scale, b, out, FORMAT: tl.constexpr):
    i, j = tl.arange(0, 32), tl.arange(0, 64)
    x = tl.load(a + i[:, None] * 64 + j[None, :])
    s = tl.load(scale + i[:, None] * 2 + tl.arange(0, 2)[None, :])
    y = tl.load(b + j[:, None] * 32 + i[None, :])
    product = tl.dot_scaled(x, s, FORMAT, y, None, "bf16")
    tl.store(out + i[:, None] * 32 + i[None, :], product)


@pytest.mark.skipif(RELEASE < (3, 9), reason="reads bits itself")
@pytest.mark.parametrize(
    ("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)]
)
def test_scaled_products_of_eight_bits(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(32, 64, generator=generator).to(dtype)
    b = torch.randn(64, 32, generator=generator).to(torch.bfloat16)
    scale = torch.randint(120, 130, (32, 2), generator=generator, dtype=torch.uint8)
    out = torch.empty(32, 32)
    seen = watched(scaled_product, a, scale, b, out, FORMAT=name)
    assert seen.unreliable == ""
    factor = (scale.double() - 127).exp2().repeat_interleave(32, 1)
    wanted = (a.double() * factor) @ b.double()
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-4)


@triton.jit
def parity(x, out, N: tl.constexpr):
    bits = tl.load(x + tl.arange(0, N)) > 0
    tl.store(out, tl.sum(bits, dtype=tl.int1).to(tl.int32))


def test_a_sum_of_one_bit_has_one_bit() -> None:
    for ones in (1, 2, 3):
        x, out = torch.zeros(8), torch.empty((), dtype=torch.int32)
        x[:ones] = 1
        watched(parity, x, out, N=8)
        assert int(out) == ones % 2
