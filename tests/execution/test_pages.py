"""Arguments beside pages that fault, and views that span more than there is."""

import ctypes
import faulthandler
import mmap
import os
import resource
import signal

import pytest
import torch

from kfuzz.core.recipe import Case, Edge, Fill, TensorSpec
from kfuzz.execution.calls.results import Invocation, execute
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.fences import NoAddressSpace, fenced_memory, sparse_memory
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Expected, Touch
from tests.helpers.poisoned import is_poison

PAGE = mmap.PAGESIZE
FAR = 2**30 + 1
GIB = 1 << 30


def dies(action):
    """Whether an action ends its process by a fault; run in a fork."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        for number in (signal.SIGSEGV, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)
        action()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGSEGV, -signal.SIGBUS)
    return code != 0


def load(address):
    return lambda: ctypes.string_at(address, 1)


def store(address):
    return lambda: ctypes.memset(address, 1, 1)


def spec_of(*shape, strides=None, offset=0, dtype="float32"):
    axes = tuple("abc"[: len(shape)])
    return TensorSpec(shape, axes, dtype, strides, offset, Fill("randn"))


def placed(edge=None, *, alignment=16, arena=None, **specs):
    values = {
        name: (torch.arange(s.numel) % 50).reshape(s.shape).to(getattr(torch, s.dtype))
        for name, s in specs.items()
    }
    return place(
        specs, values, device="cpu", alignment=alignment, poison=Poison.NAN,
        arena=arena, edge=edge,
    )  # fmt: skip


def ends(tensor):
    """Return the addresses of a tensor's storage, first and one past the last."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def test_memory_between_fences_is_ordinary_and_the_fences_fault():
    memory = fenced_memory(PAGE + 1)
    start, stop = memory.data_ptr(), memory.data_ptr() + memory.numel()
    assert memory.numel() == 2 * PAGE
    memory.fill_(7)
    assert memory.eq(7).all()
    assert not dies(load(start))
    assert not dies(store(stop - 1))
    for outside in (start - 1, stop):
        assert dies(load(outside))
        assert dies(store(outside))


def test_readable_fences_let_reads_pass_and_writes_fault():
    memory = fenced_memory(PAGE, readable=True)
    stop = memory.data_ptr() + memory.numel()
    assert not dies(load(stop))
    assert dies(store(stop))


@pytest.mark.parametrize("layout", [None, (1, 8), (8, 1)])
def test_the_first_byte_outside_faults_on_the_side_asked_for(layout):
    spec = spec_of(8, 4, strides=layout)
    for side in ("start", "end"):
        placement = placed(Edge(side), x=spec, y=spec_of(4))
        for name in ("x", "y"):
            base, stop = ends(placement.tensors[name])
            assert base % 16 == 0
            outside = base - 1 if side == "start" else stop
            assert dies(load(outside))
            # The other side is a guard zone: it can be written, and is seen.
            inside = stop if side == "start" else base - 1
            assert not dies(store(inside))
        assert torch.equal(placement.tensors["x"].flatten(), torch.arange(32.0))
        assert placement.touches() == []


def test_one_argument_alone_lies_at_an_edge():
    placement = placed(Edge("end", "y"), x=spec_of(4), y=spec_of(4))
    x, y = (ends(t) for t in placement.tensors.values())
    assert not dies(load(x[1]))
    assert dies(load(y[1]))
    assert [(t.argument, t.where) for t in stored(placement, x[1], y[0] - 4)] == [
        ("x", "after"),
        ("y", "before"),
    ]


def stored(placement, *addresses):
    for address in addresses:
        ctypes.c_float.from_address(address).value = 1.5
    return placement.touches()


def test_the_gap_that_alignment_leaves_holds_poison_and_is_compared():
    placement = placed(Edge("end"), x=spec_of(5))
    base, stop = ends(placement.tensors["x"])
    assert base % 16 == 0
    assert stop % PAGE == PAGE - 12
    gap = torch.frombuffer(bytearray(ctypes.string_at(stop, 12)), dtype=torch.float32)
    assert is_poison(gap, Poison.NAN).all()
    assert dies(load(stop + 12))
    assert stored(placement, stop + 4) == [Touch("x", "after", 1, 2, 4)]


@pytest.mark.parametrize("side", ["start", "end"])
def test_slack_moves_an_argument_away_from_the_page(side):
    placement = placed(Edge(side, slack=32), x=spec_of(4))
    base, stop = ends(placement.tensors["x"])
    near, far = (base - 32, base - 33) if side == "start" else (stop + 31, stop + 32)
    assert not dies(load(near))
    assert dies(load(far))


def test_a_storage_offset_lies_between_the_start_and_the_page():
    x = placed(Edge("start"), x=spec_of(4, offset=3)).tensors["x"]
    assert x.data_ptr() % PAGE == 12
    assert ends(x)[0] == x.data_ptr() - 12
    y = placed(Edge("end"), x=spec_of(1, offset=3)).tensors["x"]
    assert ends(y)[1] % PAGE == 0


def test_rooms_are_used_again_and_grow():
    arena = Arena("cpu")
    first = placed(Edge("end"), arena=arena, x=spec_of(4)).tensors["x"]
    stop = ends(first)[1]
    second = placed(Edge("end"), arena=arena, x=spec_of(300, 2))
    assert ends(second.tensors["x"])[1] == stop
    large = placed(Edge("end"), arena=arena, x=spec_of(300, 300))
    assert dies(load(ends(large.tensors["x"])[1]))
    assert large.touches() == []


def test_empty_arguments_and_devices_without_edges_are_placed_as_ever():
    placement = placed(Edge("end"), x=spec_of(0, 3), y=spec_of(2))
    assert placement.tensors["x"].shape == (0, 3)
    assert placement.touches() == []


def test_inplace_elements_at_an_edge_may_change():
    placement = placed(Edge("end"), x=spec_of(4, 4))
    placement.tensors["x"].fill_(99)
    assert [t.where for t in placement.touches()] == ["element"]
    assert placement.touches(inplace={"x"}) == []


def resident():
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_a_view_past_2_31_elements_costs_what_its_elements_take():
    spec = spec_of(3, 2, strides=(FAR, 1))
    before = resident()
    placement = placed(x=spec)
    x = placement.tensors["x"]
    assert x.stride() == (FAR, 1)
    assert x.untyped_storage().nbytes() == spec.span * 4 > 8 * GIB
    assert torch.equal(x, torch.arange(6.0).reshape(3, 2))
    assert torch.equal(torch.relu(x) @ torch.ones(2), torch.tensor([1.0, 5.0, 9.0]))
    assert placement.touches() == []
    assert resident() - before < 256 << 20


def test_writes_around_the_elements_of_a_sparse_view_are_found():
    specs = {"y": spec_of(4), "x": spec_of(3, 2, strides=(FAR, 1))}
    placement = placed(**specs)
    x = placement.tensors["x"]
    at = x.data_ptr()
    for offset in (-1, 2, FAR - 2, 2 * FAR + 2):
        ctypes.c_float.from_address(at + 4 * offset).value = 1.5
    placement.tensors["y"][0] = 9
    x[2, 1] = 77
    assert placement.touches() == [
        Touch("y", "element", 1, 0, 4, (0,)),
        Touch("x", "element", 1, 0, 4, (2, 1)),
        Touch("x", "slack", 2, 1, 4),
        Touch("x", "before", 1, 1, 4),
        Touch("x", "after", 1, 1, 4),
    ]
    assert "element" not in {
        t.where for t in placement.touches(inplace={"x"}) if t.argument == "x"
    }


def test_every_element_apart_is_still_cheap_to_compare():
    spec = spec_of(2000, 3, strides=(1 << 16, FAR))
    placement = placed(x=spec)
    placement.tensors["x"][1999, 2] = -1
    assert placement.touches() == [Touch("x", "element", 1, 0, 4, (1999, 2))]


def test_an_allocation_with_huge_strides_is_let_through_unguarded():
    x = placed(x=spec_of(3, strides=(FAR,))).tensors["x"]
    with GuardedAllocations("cpu", Poison.NAN) as allocations:
        like = torch.empty_like(x)
        try:
            strided = torch.empty_strided(x.shape, x.stride())
        except RuntimeError:  # a machine that does not overcommit
            return
    assert like.stride() == (1,)
    assert strided.stride() == (FAR,)
    assert allocations.unguarded == 1
    assert allocations.touches() == []


def test_more_address_space_than_there_is_is_no_fault_of_the_kernel():
    with pytest.raises(NoAddressSpace, match="address space"):
        sparse_memory(1 << 60)
    spec = spec_of(3, strides=(1 << 58,))
    case = Case({"x": spec})
    asked = Invocation(
        torch.relu, case, {"y": Expected((3,), torch.float32)}, alignment=16,
        around=Poison.NAN,
    )  # fmt: skip
    values = {"x": torch.zeros(3)}
    run = execute(asked, values, arena=Arena("cpu"), fresh=Poison.NAN)
    assert "address space" in run.unreliable
