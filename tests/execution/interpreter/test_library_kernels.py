"""Kernels written as released libraries write them: judged, and their faults found.

Each feature has a correct kernel and a faulty one, which differ in one place.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import (
    constexpr,
    extra,
    load,
    maximum,
    static_range,
)
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import rsqrt as device_rsqrt
from triton.language.extra.libdevice import rsqrt

import kfuzz
from kfuzz import strategies as ks
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.execution.device import simulated as declared
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers.judged_cases import judged, spec

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)

Launch = Callable[[Any, Tensor], Tensor]

exponential = tl.exp


def blocks(made: Any, x: Tensor, *scalars: object, **constants: int) -> Tensor:
    """Launch an elementwise kernel with blocks of 16."""
    y, n = torch.empty_like(x), x.numel()
    x = x.contiguous()
    made[(triton.cdiv(n, 16),)](x, y, n, *scalars, BLOCK=16, **constants)
    return y


@triton.jit
def tanh_of_libdevice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, libdevice.tanh(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def tanh_of_half(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, libdevice.tanh(tl.load(x + at, mask=at < n) / 2), mask=at < n)


@triton.jit
def tanh_by_path(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, extra.cuda.libdevice.tanh(value), mask=at < n)


@triton.jit
def sine_by_path(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, extra.cuda.libdevice.sin(value), mask=at < n)


@triton.jit
def root_by_name(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, rsqrt(tl.load(x + at, mask=at < n, other=1.0)), mask=at < n)


@triton.jit
def root_by_name_of_twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=1.0)
    tl.store(y + at, device_rsqrt(value + value), mask=at < n)


@triton.jit
def exp_by_alias(x, y, n, BLOCK: constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, exponential(load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def exp_by_alias_of_positive(x, y, n, BLOCK: constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = maximum(load(x + at, mask=at < n), 0.0)
    tl.store(y + at, exponential(value), mask=at < n)


@triton.jit
def adds_scalar(x, y, n, more, BLOCK: "tl.constexpr"):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n.to(tl.int64))
    tl.store(y + at, tl.exp(value + more.to(tl.float32)), mask=at < n)


@triton.jit
def exp_in_loops(x, y, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        for part in tl.range(2):
            half = tl.arange(0, BLOCK // 2) + part.to(tl.int64) * (BLOCK // 2)
            at = (start + half).to(tl.int64)
            tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def exp_of_rows(x, y, n, m, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = (at < m) & (row < n)
    tl.store(y + row * m + at, tl.exp(tl.load(x + row * m + at, mask=mask)), mask=mask)


@triton.jit
def exp_of_rows_and_more(x, y, n, m, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = (at < m) & (row <= n)
    tl.store(y + row * m + at, tl.exp(tl.load(x + row * m + at, mask=mask)), mask=mask)


@triton.jit
def exp_in_loops_but_one(x, y, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        for part in static_range(1):
            half = tl.arange(0, BLOCK // 2) + part * (BLOCK // 2)
            at = (start + half).to(tl.int64)
            tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


def enclosed(power: int) -> Any:
    base = exponential

    @triton.jit
    def within(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, base(tl.load(x + at, mask=at < n) * power), mask=at < n)

    return within


@triton.jit
def assembled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=r,r", [tl.load(x + at, mask=at < n, other=0.0)],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(y + at, made, mask=at < n)


@triton.jit
def assembled_wrongly(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = tl.inline_asm_elementwise(
        "sin.approx.f32 $0, $1;", "=r,r", [tl.load(x + at, mask=at < n, other=0.0)],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(y + at, made, mask=at < n)


def on_a_list(made: Any, x: Tensor) -> Tensor:
    y, n = torch.empty_like(x), x.numel()
    made[[triton.cdiv(n, 16)]](x.contiguous(), y, n, BLOCK=16)
    return y


def on_a_grid_of_numbers(made: Any, x: Tensor) -> Tensor:
    y, n = torch.empty_like(x), x.numel()

    def grid(meta: dict[str, Any]) -> list[int]:
        assert type(meta["n"]) is int  # as compiled kernels see it
        return [triton.cdiv(meta["n"], meta["BLOCK"]), 1]

    made[grid](x.contiguous(), y, n, BLOCK=16)
    return y


def on_cuda_alone(made: Any, x: Tensor) -> Tensor:
    """Launch as wrappers do that know no other device."""
    if not torch.cuda.is_available() or x.device.type != "cuda":
        return torch.exp(x)  # and the kernel would never run
    assert x.is_cuda
    properties = torch.cuda.get_device_properties(x.device)
    most = triton.runtime.driver.active.utils.get_device_properties(0)
    assert properties.multi_processor_count == most["multiprocessor_count"] == 16
    assert torch.cuda.get_device_capability(x.device) >= (9, 0)
    with torch.cuda.device(x.device.index):
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        n = torch.tensor([x.numel()], device=torch.cuda.current_device())
        with torch.cuda.stream(torch.cuda.Stream()):
            made[(triton.cdiv(x.numel(), 16),)](x.contiguous(), y, n.item(), BLOCK=16)
        torch.cuda.synchronize()
    return y


def in_one_program(made: Any, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    made[(1,)](x.contiguous(), y, x.numel(), BLOCK=16)
    return y


def in_rows(made: Any, x: Tensor) -> Tensor:
    y, m = torch.empty_like(x), x.shape[-1]
    n = x.numel() // m
    made[(n + 1,)](x.contiguous(), y, n, m, BLOCK=8)
    return y


def with_scalar(more: object) -> Launch:
    def launch(made: Any, x: Tensor) -> Tensor:
        y, n = torch.empty_like(x), x.numel()
        made[(triton.cdiv(n, 16),)](x.contiguous(), y, n, more, BLOCK=16)
        return y

    return launch


# Feature -> what is computed, and how a correct and a faulty kernel are launched.
FEATURES: dict[str, tuple[Any, tuple[Launch, Any], tuple[Launch, Any]]] = {
    "libdevice": (torch.tanh, (blocks, tanh_of_libdevice), (blocks, tanh_of_half)),
    "tl.extra": (torch.tanh, (blocks, tanh_by_path), (blocks, sine_by_path)),
    "names of libdevice": (
        torch.rsqrt, (blocks, root_by_name), (blocks, root_by_name_of_twice)
    ),
    "names of tl": (
        torch.exp, (blocks, exp_by_alias), (blocks, exp_by_alias_of_positive)
    ),
    "scalars": (
        torch.exp, (with_scalar(0.0), adds_scalar), (with_scalar(0.5), adds_scalar)
    ),
    "masks of a number": (
        torch.exp, (in_rows, exp_of_rows), (in_rows, exp_of_rows_and_more)
    ),
    "flags": (
        torch.exp, (with_scalar(False), adds_scalar), (with_scalar(True), adds_scalar)
    ),
    "loops": (
        torch.exp,
        (in_one_program, exp_in_loops),
        (in_one_program, exp_in_loops_but_one),
    ),
    "enclosing functions": (torch.exp, (blocks, enclosed(1)), (blocks, enclosed(2))),
    "assembly": (torch.tanh, (blocks, assembled), (blocks, assembled_wrongly)),
    "lists as grids": (
        torch.exp, (on_a_list, exp_by_alias), (on_a_list, exp_by_alias_of_positive)
    ),
    "functions as grids": (
        torch.exp,
        (on_a_grid_of_numbers, exp_by_alias),
        (on_a_grid_of_numbers, exp_by_alias_of_positive),
    ),
    "a GPU": (
        torch.exp,
        (on_cuda_alone, exp_by_alias),
        (on_cuda_alone, exp_by_alias_of_positive),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def met() -> Iterator[None]:
    declared.meet(True)
    yield
    declared.meet(False)


def report(oracle: Any, launch: Launch, made: Any) -> CaseReport:
    operator = kfuzz.Operator("f", inputs={"x": ks.tensors("*")}, oracle=oracle)
    case = Case({"x": spec("randn", (7, 5), seed=3)})
    classes = {"K-VAL-01", "K-MEM-01"}
    return judged(
        operator, lambda x: launch(made, x), case, classes=classes, depth=Depth.SEARCH
    )


@pytest.mark.parametrize("feature", FEATURES)
def test_correct_kernels_pass_and_faulty_ones_are_found(feature: str) -> None:
    oracle, right, wrong = FEATURES[feature]
    found = report(oracle, *right)
    assert found.unsupported is None
    assert found.failure is None
    assert found.verdicts["K-VAL-01"] is Verdict.CONFORMS
    found = report(oracle, *wrong)
    assert found.unsupported is None
    assert found.failure is not None
    assert found.failure.contract in ("K-VAL-01", "K-MEM-01")


@triton.jit
def bessel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, libdevice.jn(2, tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def half_of_libdevice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float16)
    tl.store(y + at, libdevice.tanh(value), mask=at < n)


@triton.jit
def of_another_vendor(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, libdevice.fast_tanhf(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def branches(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = tl.inline_asm_elementwise(
        "bra.uni $1;", "=r,r", [tl.load(x + at, mask=at < n)],
        dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(y + at, made, mask=at < n)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (bessel, "__nv_jnf"), (half_of_libdevice, "no tanh of (fp16)"),
        (of_another_vendor, "fast_tanhf"), (branches, "bra.uni"),
    ],
)  # fmt: skip
def test_what_has_no_form_here_is_named_and_not_judged(made: Any, named: str) -> None:
    found = report(torch.exp, blocks, made)
    assert found.failure is None
    assert found.unsupported is not None
    assert named in found.unsupported
