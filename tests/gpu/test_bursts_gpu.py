"""Bursts on a CUDA device: each fault is its member's, and nothing waits for it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor, empty_like

from kfuzz.contracts.witnesses.gpu import elementwise_cpp
from kfuzz.core.recipe import Case, Destination, Fill, TensorSpec
from kfuzz.execution.calls import batches as bursts
from kfuzz.execution.calls.batches import BatchRun, run_batch
from kfuzz.execution.calls.results import Invocation, execute
from kfuzz.execution.device.backends import fault_of
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Expected
from tests.gpu.waits import raising_waits
from tests.helpers.poisoned import is_poison

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
FILL = Fill("randn")
MEMBERS = 12
PLAIN = TensorSpec((4, 24), ("a", "b"), "float32", fill=FILL)
LAYOUTS = {
    "contiguous": PLAIN,
    "padded": TensorSpec((4, 24), ("a", "b"), "float16", (29, 1), 3, FILL),
    "transposed": TensorSpec((4, 24), ("a", "b"), "bfloat16", (1, 4), 0, FILL),
    "expanded": TensorSpec((4, 24), ("a", "b"), "float32", (0, 1), 1, FILL),
    "float8": TensorSpec((4, 24), ("a", "b"), "float8_e4m3fn", fill=FILL),
    "int64": TensorSpec((5,), ("a",), "int64", fill=FILL),
    "bool": TensorSpec((33,), ("a",), "bool", fill=FILL),
    "scalar": TensorSpec((), (), "float32", fill=FILL),
    "empty": TensorSpec((3, 0), ("a", "b"), "float32", fill=FILL),
}


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a child: other tests of this process may have loaded torch._dynamo."""
    monkeypatch.setattr(bursts, "has_traced", lambda: False)


@triton.jit(do_not_specialize=["n"])
def relu_kernel(x, y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Write max(x, 0); where x begins with a 7, with a fault."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seven = (tl.load(x) == 7.0).to(tl.int32)
    stop = n
    if FAULT == "past":
        stop = n + seven
    if FAULT == "unwritten":
        stop = n - seven
    value = tl.load(x + at, mask=at < n, other=64.0)
    tl.store(y + at, tl.maximum(value, 0.0), mask=at < stop)
    if FAULT == "changes":
        tl.store(x + 1 + at, value + 1.0, mask=(at < 1) & (seven == 1))
    if FAULT == "before":
        tl.store(x - 1 - at, value + 1.0, mask=(at < 1) & (seven == 1))
    if FAULT == "far":
        tl.store(x + (1 << 42) + at, value, mask=(at < 1) & (seven == 1))


def relu(x: Tensor, fault: str = "", out: Tensor | None = None) -> Tensor:
    y = torch.empty_like(x) if out is None else out
    relu_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), FAULT=fault, BLOCK=64)
    return y


def faulty(fault: str) -> Callable[[Tensor], Tensor]:
    return lambda x: relu(x, fault)


def into(x: Tensor, y: Tensor, fault: str = "") -> None:
    relu(x, fault, out=y)


def in_place(x: Tensor) -> Tensor:
    return relu(x, out=x)


def values_of(spec: TensorSpec, members: int = MEMBERS) -> Tensor:
    made = torch.randn((members, *spec.shape), device="cuda") * 3
    if spec.strides is not None and spec.strides[0] == 0:
        made = made[:, :1].expand(made.shape).contiguous()
    return made.to(getattr(torch, spec.dtype))


def marked(*numbers: int) -> Tensor:
    values = values_of(PLAIN)
    values[list(numbers), 0, 0] = 7
    return values


def invocation(
    call: Callable[..., Any], spec: TensorSpec, **options: Any
) -> Invocation:
    return Invocation(
        call, Case({"x": spec}),
        {"y": Expected(spec.shape, getattr(torch, spec.dtype))},
        alignment=16, around=Poison.NAN, **options,
    )  # fmt: skip


def run(
    call: Callable[..., Any],
    x: Tensor,
    spec: TensorSpec = PLAIN,
    arena: Arena | None = None,
    **options: Any,
) -> BatchRun:
    asked = invocation(call, spec, **options)
    return run_batch(asked, {"x": x}, arena=arena or Arena("cuda"), step=lambda: None)


def suspects(made: BatchRun, x: Tensor) -> tuple[list[int], list[int], dict[int, str]]:
    """Return the members with wrong values, those that touched memory, the others."""
    assert not made.unsupported, made.unsupported
    assert not made.lost, made.lost
    wrong = (made.outputs["y"] != x.clamp(min=0)).flatten(1).any(1)
    numbers = wrong.nonzero().flatten().tolist()
    return numbers, made.touched.nonzero().flatten().tolist(), dict(made.failed)


def raw(x: Tensor) -> Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)


def copied(x: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return out.copy_(x)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_right_kernel_gives_what_it_gives_alone(name: str) -> None:
    spec = LAYOUTS[name]
    x = values_of(spec)
    arena = Arena("cuda")
    addresses: list[int] = []

    def call(given: Tensor) -> Tensor:
        assert given.stride() == spec.element_strides
        out = copied(given)
        addresses.append(out.data_ptr())
        return out

    for turn in range(2):
        made = run(call, x, spec, arena)
        assert (made.unsupported, made.lost, dict(made.failed)) == ("", "", {}), turn
        assert made.touched.tolist() == [False] * MEMBERS, turn
        for number in range(MEMBERS):
            alone = execute(
                invocation(copied, spec), {"x": x[number]}, arena=Arena("cuda"),
                fresh=Poison.FINITE,
            )  # fmt: skip
            assert torch.equal(
                raw(made.outputs["y"][number]), raw(alone.outputs["y"])
            ), (turn, number)
    assert all(address % 512 == 0 for address in addresses)


@pytest.mark.parametrize("numbers", [(0,), (1,), (5, 6, 11)])
@pytest.mark.parametrize("fault", ["past", "before", "changes", "unwritten"])
def test_a_fault_is_its_member_s(fault: str, numbers: tuple[int, ...]) -> None:
    x = marked(*numbers)
    made = run(faulty(fault), x)
    wrong, touched, failed = suspects(made, x)
    assert failed == {}
    if fault == "unwritten":
        assert (wrong, touched) == (list(numbers), [])
        for number in numbers:
            poison = Poison.FINITE if number % 2 else Poison.NAN
            last = made.outputs["y"][number, -1, -1]
            assert bool(is_poison(last, poison)), (number, last)
    else:
        assert touched == list(numbers), (touched, wrong)


def test_in_place_and_destinations() -> None:
    x = marked(4, 7)
    made = run(in_place, x, inplace=("x",))
    assert suspects(made, x) == ([], [], {})
    places = {"y": Destination((4, 24), "float32", (24, 1), 3)}
    made = run(into, x, destinations=places)
    assert suspects(made, x) == ([], [], {})
    made = run(into, x, destinations=places, scalars={"fault": "past"})
    assert suspects(made, x)[1] == [4, 7]
    made = run(into, x, destinations=places, scalars={"fault": "unwritten"})
    assert suspects(made, x) == ([4, 7], [], {})


@pytest.mark.parametrize("how", ["captured", "new", "grown"])
def test_what_few_members_allocate_otherwise_is_guarded(how: str) -> None:
    makes: dict[str, Callable[[Tensor], Tensor]] = {
        "captured": lambda x: empty_like(x),  # looked up when it is called
        "new": lambda x: x.new(x.shape),
        "grown": lambda x: torch.empty(0, device=x.device).resize_(x.shape),
    }

    def past(given: Tensor) -> Tensor:
        if given[0, 0] == 7:
            relu(given, "past", out=makes[how](given))
        return relu(given)

    x, arena = marked(1, 5, 8), Arena("cuda")
    for number in range(2):
        found = suspects(run(past, x, arena=arena), x)
        assert found == ([], [1, 5, 8], {}), (how, number)


def test_a_launch_that_fails_unseen() -> None:
    spec = TensorSpec((2, 2048), ("a", "b"), "float32", fill=FILL)
    x = values_of(spec)
    made = run(elementwise_cpp.cuda_relu_thread_per_column.on, x, spec)
    wrong, touched, failed = suspects(made, x)
    assert touched == []
    # Nothing was written; what error is left depends on the runtime.
    assert wrong == list(range(MEMBERS))
    assert set(failed) <= set(range(MEMBERS))
    # The next burst starts clean.
    x = values_of(PLAIN)
    assert suspects(run(relu, x), x) == ([], [], {})


FAR = """
import torch
from tests.gpu import test_bursts_gpu as bursts_gpu
from kfuzz.execution.device.backends import fault_of
x = bursts_gpu.marked(5)
made = bursts_gpu.run(bursts_gpu.faulty("far"), x)
print("delicate:", bursts_gpu.bursts.has_traced())
print("lost in the burst:", repr(made.lost), "after:", fault_of(torch.device("cuda")))
"""


def test_a_fault_is_seen_in_the_burst_or_by_whoever_waits() -> None:
    found = subprocess.run(
        [sys.executable, "-c", FAR],
        capture_output=True, text=True, timeout=80, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "after: illegal_address" in found.stdout, (
        found.stdout,
        found.stderr[-2000:],
    )
    assert fault_of(torch.device("cuda")) == ""


def test_nothing_waits_for_the_device() -> None:
    x, arena = values_of(PLAIN), Arena("cuda")
    run(relu, x, arena=arena)  # compiles, and makes memory
    run(relu, x, arena=arena)
    torch.cuda.synchronize()
    with raising_waits():
        made = run(relu, x, arena=arena)
    # What waited would have raised in the kernel's place, or here.
    assert suspects(made, x) == ([], [], {})
