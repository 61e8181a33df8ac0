"""Bursts: what each call of many sees, and which of them are suspects."""

import ctypes
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Destination, TensorSpec
from kfuzz.execution.calls import batches as bursts
from kfuzz.execution.calls import results as environment
from kfuzz.execution.calls import results as gathering
from kfuzz.execution.calls import results as raised
from kfuzz.execution.calls.batches import RAISES
from kfuzz.execution.calls.results import EARLIER, Invocation, execute
from kfuzz.execution.memory import allocations as prepared
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Expected, UncheckedLaunch
from tests.helpers import burst_kernels as kernels
from tests.helpers.burst_runs import (
    FILL,
    LAYOUTS,
    MARKED,
    MEMBERS,
    PLAIN,
    RIGHT,
    marked,
    run,
    same_bits,
    suspects,
    touched,
    values_of,
)
from tests.helpers.poisoned import is_poison

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("alignment", [1, 16, 64])
@pytest.mark.parametrize("name", LAYOUTS)
def test_arguments_are_what_the_recipe_says(name: str, alignment: int) -> None:
    spec = LAYOUTS[name]
    x = values_of(spec)
    seen = []

    def copy(given: Tensor) -> Tensor:
        assert given.stride() == spec.element_strides
        if given.numel():
            base = given.data_ptr() - spec.offset * given.element_size()
            size = max(alignment, given.element_size())
            assert base % size == 0
            assert size >= 64 or base % (2 * size) == size
        seen.append(given.data_ptr())
        out = torch.empty_like(given, memory_format=torch.contiguous_format)
        return out.copy_(given)

    made = run(copy, x, spec, alignment=alignment)
    assert (made.failed, touched(made)) == ({}, [])
    assert same_bits(made.outputs["y"], x)
    assert made.outputs["y"].is_contiguous()
    assert len(set(seen)) == (MEMBERS if spec.numel else 1)


@pytest.mark.parametrize("around", Poison)
@pytest.mark.parametrize("name", ["padded", "expanded", "int8", "contiguous"])
def test_what_is_no_element_holds_poison(name: str, around: Poison) -> None:
    spec = LAYOUTS[name]
    seen = []

    def look(given: Tensor) -> Tensor:
        for start, count in (
            (-spec.offset - 1000, 1000),
            (-spec.offset, spec.offset),
            (spec.span, 1000),
        ):
            beside = kernels.memory(given, start, count)
            seen.append(bool(is_poison(beside, around).all()))
        return given.clone(memory_format=torch.contiguous_format)

    run(look, values_of(spec), spec, around=around)
    assert len(seen) == 3 * MEMBERS
    assert all(seen)


@pytest.mark.parametrize("name", ["contiguous", "padded", "transposed", "stepped"])
@pytest.mark.parametrize("kernel", RIGHT, ids=lambda k: k.__name__)
def test_a_right_kernel_gives_what_it_gives_alone(
    kernel: Callable[..., Any], name: str
) -> None:
    spec = LAYOUTS[name]
    x = values_of(spec)
    arena = Arena("cpu")
    for _ in range(2):  # a second burst in the same memory
        made = run(kernel, x, spec, arena=arena)
        assert (made.failed, touched(made), made.unsupported) == ({}, [], "")
        for number in range(MEMBERS):
            asked = Invocation(
                kernel, Case({"x": spec}), {"y": Expected(spec.shape, x.dtype)},
                alignment=16, around=Poison.NAN,
            )  # fmt: skip
            alone = execute(
                asked, {"x": x[number]}, arena=Arena("cpu"), fresh=Poison.FINITE
            )
            assert same_bits(made.outputs["y"][number], alone.outputs["y"])


FAULTY = {
    kernels.past_own: "touched",
    kernels.past_extra: "touched",
    kernels.past_captured: "touched",
    kernels.past_argument: "touched",
    kernels.changes_argument: "touched",
    kernels.unwritten: "values",
    kernels.raises: "raised ValueError: no sevens",
    kernels.wrong_shape: "metadata: y has shape (24,), expected (4, 6)",
    kernels.wrong_dtype: "metadata: y is torch.float16, expected torch.float32",
    kernels.nothing: "metadata: y is NoneType, expected torch.Tensor",
    kernels.returns_argument: "aliases: y shares memory with the input x",
}


@pytest.mark.parametrize("numbers", [(0,), (1,), (5,), (0, 1, 3, 8)])
@pytest.mark.parametrize("kernel", FAULTY, ids=lambda k: k.__name__)
def test_a_fault_is_its_member_s(
    kernel: Callable[..., Any], numbers: tuple[int, ...]
) -> None:
    x = marked(*numbers)
    arena = Arena("cpu")
    for number in range(2):  # in the second burst the first call is like the others
        made = run(kernel, x, arena=arena)
        assert suspects(made, x) == set(numbers), number
    how = FAULTY[kernel]
    if how == "touched":
        assert touched(made) == list(numbers)
    elif how == "values":
        for number in numbers:  # poison that alternates
            poison = Poison.FINITE if number % 2 else Poison.NAN
            assert is_poison(made.outputs["y"][number], poison).all()
    else:
        assert made.failed == dict.fromkeys(numbers, how)


def test_in_place_results_are_read_where_they_lie() -> None:
    x = marked(MARKED)
    made = run(kernels.in_place, x, inplace=("x",))
    assert suspects(made, x) == set()
    assert touched(run(kernels.in_place, x)) == list(range(MEMBERS))
    assert touched(run(kernels.in_place_past, x, inplace=("x",))) == [MARKED]
    made = run(kernels.in_place_fresh, x, inplace=("x",))
    assert set(made.failed) == {MARKED}
    assert "other than x" in made.failed[MARKED]


@pytest.mark.parametrize("strides", [(6, 1), (9, 1), (1, 4)])
def test_destinations(strides: tuple[int, int]) -> None:
    places = {"y": Destination((4, 6), "float32", strides, 2)}
    x = marked(4, 5)
    for kernel in (kernels.into, kernels.into_returned):
        made = run(kernel, x, destinations=places)
        assert suspects(made, x) == set()
    made = run(kernels.into_fresh, x, destinations=places)
    assert set(made.failed) == {4, 5}
    made = run(kernels.into_partly, x, destinations=places)
    assert suspects(made, x) == {4, 5}
    for number, poison in ((4, Poison.NAN), (5, Poison.FINITE)):
        assert is_poison(made.outputs["y"][number, 0], poison).all()
    if strides == (6, 1):
        assert touched(run(kernels.into_past, x, destinations=places)) == [4, 5]


def test_several_results() -> None:
    x = values_of(PLAIN)
    expected = {
        "top": Expected((4,), torch.float32),
        "total": Expected((4,), torch.float64),
    }
    made = run(kernels.both, x, expected=expected)
    assert same_bits(made.outputs["top"], x.amax(-1))
    assert same_bits(made.outputs["total"], x.double().sum(-1))
    made = run(kernels.relu, x, expected=expected)
    assert set(made.failed) == set(range(MEMBERS))


def test_without_a_result_of_the_oracle_values_are_not_read() -> None:
    x = marked(MARKED)
    made = run(kernels.past_argument, x, expected={})
    assert (dict(made.outputs), made.failed) == ({}, {})
    assert touched(made) == [MARKED]


def test_results_in_memory_of_an_earlier_call() -> None:
    x = values_of(PLAIN)
    made = run(kernels.static, x)
    # The first is copied before the next call.
    assert made.failed == dict.fromkeys(range(1, MEMBERS), EARLIER)


def test_after_exceptions_in_a_row_the_others_are_not_run() -> None:
    x = values_of(PLAIN, 20)
    made = run(kernels.raises_always, x)
    reasons = [made.failed[n] for n in range(20)]
    assert reasons[: RAISES + 1] == ["raised IndexError: never"] * (RAISES + 1)
    assert set(reasons[RAISES + 1 :]) == {
        f"not run: {RAISES + 1} calls before it raised"
    }


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, 1), (2.5, 4), (1e9, MEMBERS)])
def test_when_its_time_is_over_the_others_are_dropped(
    monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int
) -> None:
    """The first call, which may compile, does not count."""
    now = [0.0]

    def relu(x: Tensor) -> Tensor:
        now[0] += 1.0 if now[0] else 60.0
        return torch.relu(x)

    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(bursts, "time", clock)
    x = values_of(PLAIN)
    made = run(relu, x, seconds=seconds)
    assert made.dropped == frozenset(range(calls, MEMBERS))
    assert not made.failed
    assert suspects(made, x) <= made.dropped


def test_exceptions_between_other_calls_end_nothing() -> None:
    numbers = [n for n in range(40) if n % 4]
    x = values_of(PLAIN, 40)
    x[numbers, 0, 0] = 7
    made = run(kernels.raises, x)
    assert set(made.failed) == set(numbers)
    assert suspects(made, x) == set(numbers)


def test_bursts_of_different_structure_share_an_arena() -> None:
    arena = Arena("cpu")
    for name in ("contiguous", "expanded", "transposed", "empty", "contiguous"):
        spec = LAYOUTS[name]
        x = values_of(spec)
        made = run(kernels.relu_new, x, spec, arena=arena)
        assert (made.failed, touched(made)) == ({}, [])
        assert same_bits(made.outputs["y"], x.clamp(min=0))


def test_a_huge_view_is_unsupported() -> None:
    wide = TensorSpec((2, 2), ("a", "b"), "float32", (1 << 28, 1), 0, FILL)
    made = run(kernels.relu, values_of(wide), wide)
    assert "far more memory" in made.unsupported


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in the foreground: a shell's job in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_the_user_s() -> None:
    def interrupted(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    before = torch.empty
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, values_of(PLAIN))
    assert torch.empty is before


def test_generators_are_seeded_and_restored() -> None:
    drawn = []

    def draws(x: Tensor) -> Tensor:
        drawn.append(torch.rand(()).item())
        return kernels.relu(x)

    state = torch.get_rng_state()
    for _ in range(2):
        run(draws, values_of(PLAIN))
    assert drawn[:MEMBERS] == drawn[MEMBERS:]
    assert torch.equal(torch.get_rng_state(), state)


class Around:
    """Stands for a GPU's surroundings: the launches of some calls failed unseen."""

    def __init__(self) -> None:
        self.pending = False
        self.forgotten = 0
        self.certain = True

    def fail(self) -> None:
        self.pending = True

    def forget_errors(self) -> None:
        self.forgotten += 1
        self.pending = False

    def take_unchecked(self) -> UncheckedLaunch | None:
        pending, self.pending = self.pending, False
        name = "cudaErrorInvalidValue"
        return UncheckedLaunch(name, "", self.certain) if pending else None


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_launch_that_failed_unseen(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Around()
    for module in (bursts, environment, raised):
        monkeypatch.setattr(module, "surroundings_of", lambda device: around)
    around.fail()  # by an earlier case: forgotten
    x = marked(number)

    def call(given: Tensor) -> Tensor:
        if kernels.marked(given):
            around.fail()
        return kernels.relu(given)

    made = run(call, x)
    assert around.forgotten == 1
    # From prepared memory on it is one of all members.
    suspected = {number} if number < 2 else set(range(MEMBERS))
    assert set(made.failed) == suspected
    assert set(made.failed.values()) == {"unchecked launch: cudaErrorInvalidValue"}
    around.certain = False  # it may be a query's: then results tell
    assert run(call, x).failed == {}


def test_a_device_that_is_lost_ends_the_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bursts, raised):
        monkeypatch.setattr(module, "fault_of", lambda device: "illegal_address")
    before, x = torch.empty, marked(MARKED)
    made = run(kernels.raises, x)
    assert (made.lost, dict(made.outputs)) == ("illegal_address", {})
    assert torch.empty is before
    assert not run(kernels.relu, x).lost

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(gathering.BatchResults, "gather", broken)
    assert run(kernels.relu, x).lost == "illegal_address"
    monkeypatch.setattr(bursts, "fault_of", lambda device: "")
    with pytest.raises(RuntimeError, match="illegal memory"):
        run(kernels.relu, x)


def test_memory_that_runs_out_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(prepared, "PoisonedSlot", short)
    assert "memory ran out" in run(kernels.relu, values_of(PLAIN)).unsupported


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16])
def test_a_byte_beside_a_small_allocation(dtype: torch.dtype, side: str) -> None:
    x, arena = marked(0, 4, 5), Arena("cpu")
    for count in (1, 7, 8, 33):

        def call(given: Tensor, count: int = count) -> Tensor:
            own = torch.empty(count, dtype=dtype)
            torch.empty(3)
            if kernels.marked(given):
                offset = -1 if side == "before" else own.nbytes
                ctypes.c_uint8.from_address(own.data_ptr() + offset).value ^= 1
            return kernels.relu(given)

        made = run(call, x, arena=arena)
        assert touched(made) == [0, 4, 5]
        assert suspects(made, x) == {0, 4, 5}
