"""Bursts of kernels that Triton's interpreter runs: accesses are each member's own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Destination, Fill, TensorSpec
from kfuzz.execution.calls.batches import BurstArena, BurstRun, run_burst
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.calls.run import execute
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.placement import Arena
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import Expected
from tests.helpers import address_kernels as kernels
from tests.helpers import destination_kernels

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)

MEMBERS = 5
SPEC = TensorSpec((10,), ("a",), "float32", fill=Fill("randn"))
EXPECTED = {"y": Expected((10,), torch.float32)}


def marked(*numbers: int) -> Tensor:
    """Return data in which some members begin with a 7."""
    values = torch.randn((MEMBERS, 10), generator=torch.Generator().manual_seed(0))
    values[list(numbers), 0] = 7
    return values


def launched(kernel: Any) -> Callable[[Tensor], Tensor]:
    """Return what launches a kernel where there is a 7, else the right one."""

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        chosen = kernel if bool(x[0] == 7) else kernels.copy
        chosen[(1,)](x, y, x.numel(), BLOCK=16)
        return y

    return call


def invocation(call: Callable[..., Any], **options: Any) -> Invocation:
    return Invocation(
        call, Case({"x": SPEC}), EXPECTED, alignment=16, around=Poison.NAN, **options
    )


def run(call: Callable[..., Any], x: Tensor, **options: Any) -> BurstRun:
    asked = invocation(call, **options)
    return run_burst(asked, {"x": x}, arena=BurstArena("cpu"), step=lambda: None)


def test_a_right_kernel_gives_what_it_gives_alone() -> None:
    x = marked()
    made = run(launched(kernels.copy), x)
    assert (made.failed, made.unsupported) == ({}, "")
    assert not made.touched.any()
    for number in range(MEMBERS):
        alone = execute(
            invocation(launched(kernels.copy)), {"x": x[number]}, arena=Arena("cpu"),
            fresh=Poison.NAN,
        )  # fmt: skip
        assert torch.equal(made.outputs["y"][number], alone.outputs["y"])


@pytest.mark.parametrize("numbers", [(0,), (3,), (0, 1, 4)])
@pytest.mark.parametrize(
    ("kernel", "access"),
    [(kernels.load_all, "load of x"), (kernels.store_all, "store of its own")],
)
def test_an_access_outside_is_its_member_s(
    kernel: Any, access: str, numbers: tuple[int, ...]
) -> None:
    made = run(launched(kernel), marked(*numbers))
    assert set(made.failed) == set(numbers)
    for number in numbers:
        assert made.failed[number].startswith(f"memory: {access}")
        assert made.failed[number].endswith(": after")
    assert not made.touched.any()  # the interpreter drops the store


def test_what_only_may_be_a_fault_is_worth_one_member() -> None:
    def raced(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        kernels.store_program[(3,)](y)
        return y

    made = run(raced, marked())
    assert list(made.failed) == [0]
    assert made.failed[0].endswith(": race")


def test_destinations() -> None:
    spec = TensorSpec((2, 5), ("a", "b"), "float32", fill=Fill("randn"))
    x = marked().reshape(MEMBERS, 2, 5)
    places = {"y": Destination((2, 5), "float32", (5, 1), 0)}

    def call(fault: str) -> BurstRun:
        asked = Invocation(
            destination_kernels.launched, Case({"x": spec}),
            {"y": Expected((2, 5), torch.float32)}, alignment=16, around=Poison.NAN,
            scalars={"fault": fault}, destinations=places,
        )  # fmt: skip
        return run_burst(asked, {"x": x}, arena=BurstArena("cpu"), step=lambda: None)

    made = call("")
    assert made.failed == {}
    assert torch.equal(made.outputs["y"], x.clamp(min=0))
    made = call("past")
    assert list(made.failed) == list(range(MEMBERS))
    made = call("reads")  # what nothing wrote
    assert made.failed[0].endswith(": unwritten")


def test_what_the_interpreter_cannot_run_is_no_burst() -> None:
    def call(x: Tensor) -> Tensor:
        kernels.copy[(1,)](x, None, x.numel(), BLOCK=16)
        return x.clone()

    made = run(call, marked())
    assert made.unsupported
    assert not made.lost


def test_in_one_member_it_is_that_member_s() -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        target = None if bool(x[0] == 7) else y
        kernels.copy[(1,)](x, target, x.numel(), BLOCK=16)
        return y

    made = run(call, marked(2))
    assert list(made.failed) == [2]
    assert made.failed[2].startswith("backend: ")
