"""Fenced memory of a device, by a driver that maps the machine's own."""

import ctypes

import pytest
import torch

from kfuzz.core.recipe import Edge
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory import fences as pages
from kfuzz.execution.memory.allocations import EDGE_ALIGNMENT, GuardedAllocations
from kfuzz.execution.memory.fences import Pool
from kfuzz.execution.memory.fences import fenced_device_memory as fenced_memory
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Touch
from tests.execution.test_pages import dies, ends, load, spec_of, store
from tests.helpers.fake_driver import FENCE, GRAIN, FakeDriver, install
from tests.helpers.poisoned import is_poison

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def machine_memory(monkeypatch):
    install(monkeypatch)


@pytest.fixture
def driver():
    return FakeDriver()


def test_memory_lies_between_addresses_without_memory(driver):
    made = fenced_memory(1, CPU, driver=driver)
    assert driver.calls == ["reserve", "create", "map", "release", "set_access"]
    assert list(driver.reserved.values()) == [GRAIN + 2 * FENCE]
    assert list(driver.mapped.values()) == [GRAIN]
    memory = made.memory
    assert (memory.numel(), made.start, made.stop) == (GRAIN, 0, GRAIN)
    memory.fill_(7)
    assert memory.eq(7).all()
    start, stop = memory.data_ptr(), memory.data_ptr() + GRAIN
    assert start % GRAIN == 0
    for outside in (start - 1, stop, stop + FENCE - 1):
        assert dies(load(outside))
        assert dies(store(outside))


def test_readable_fences_are_memory_like_the_rest(driver):
    made = fenced_memory(GRAIN + 1, CPU, readable=True, driver=driver)
    assert list(driver.mapped.values()) == [2 * GRAIN + 2 * FENCE]
    assert made.memory.numel() == 2 * GRAIN + 2 * FENCE
    assert (made.start, made.stop) == (FENCE, FENCE + 2 * GRAIN)
    made.memory.fill_(3)


def test_a_pool_uses_memory_again_once_no_tensor_lies_in_it(driver):
    pool = Pool(CPU, driver)
    first = pool.take(GRAIN, readable=False)
    second = pool.take(GRAIN, readable=False)
    addresses = {first.memory.data_ptr(), second.memory.data_ptr()}
    assert len(addresses) == 2
    view = first.memory[:4]
    del first
    third = pool.take(GRAIN, readable=False)
    assert third.memory.data_ptr() not in addresses
    last = view.data_ptr()
    del view
    assert pool.take(5, readable=False).memory.data_ptr() == last
    assert len(driver.reserved) == 3
    # Another size and a fence that can be read are other memory.
    larger = pool.take(GRAIN + 1, readable=False)
    assert larger.stop == 2 * GRAIN
    readable = pool.take(1, readable=True)
    assert readable.start == FENCE
    assert len(driver.reserved) == 5


@pytest.mark.parametrize("side", ["start", "end"])
def test_own_allocations_end_or_begin_at_a_fence(driver, side):
    pool = Pool(CPU, driver)
    mode = GuardedAllocations(CPU, Poison.NAN, edge=Edge(side), pool=pool)
    with mode:
        flush = torch.empty(EDGE_ALIGNMENT // 2, dtype=torch.float32)
        odd = torch.empty(5, 5)
    for made in (flush, odd):
        assert is_poison(made, Poison.NAN).all()
        first, stop = ends(made)
        assert first % EDGE_ALIGNMENT == 0
        # At the end what the alignment leaves comes first.
        gap = 0 if side == "start" else -made.nbytes % EDGE_ALIGNMENT
        outside = first - 1 if side == "start" else stop + gap
        assert dies(load(outside))
        assert not dies(load(stop if side == "start" else first - 1))
    assert mode.touches() == []
    other = ends(odd)[1] if side == "start" else ends(odd)[0] - 4
    ctypes.c_float.from_address(other).value = 1.5
    [touch] = mode.touches()
    where = "after" if side == "start" else "before"
    assert (touch.allocation, touch.where, touch.distance) == (1, where, 1)


def test_one_allocation_alone_lies_at_a_fence_and_is_named(driver):
    edge = Edge("end", allocation=1)
    mode = GuardedAllocations(CPU, Poison.NAN, edge=edge, pool=Pool(CPU, driver))
    with mode:
        torch.empty(64)
        assert mode.beside() is None
        named = torch.empty(16, 8, dtype=torch.float64)
        torch.empty(64)
    assert len(driver.reserved) == 1
    assert dies(load(ends(named)[1]))
    beside = mode.beside()
    assert beside.memory == "its own float64[16, 8]"
    assert (beside.elements, beside.itemsize) == (128, 8)


def test_a_write_into_a_fence_that_can_be_read_is_seen(driver):
    edge = Edge("end", allocation=0, readable=True)
    mode = GuardedAllocations(CPU, Poison.FINITE, edge=edge, pool=Pool(CPU, driver))
    with mode:
        made = torch.empty(64)
    ctypes.c_float.from_address(ends(made)[1] + 40 * 4).value = 1.5
    [touch] = mode.touches()
    assert (touch.where, touch.distance, touch.count) == ("after", 41, 1)


def test_memory_that_cannot_be_had_leaves_an_allocation_in_its_block():
    driver = FakeDriver({"create": "CUDA_ERROR_OUT_OF_MEMORY"})
    mode = GuardedAllocations(CPU, Poison.NAN, edge=Edge("end"), pool=Pool(CPU, driver))
    with mode:
        made = torch.empty(64)
    assert is_poison(made, Poison.NAN).all()
    assert mode.touches() == []
    assert driver.empty


@pytest.mark.parametrize("side", ["start", "end"])
def test_writes_beyond_an_argument_into_a_readable_fence_are_located(driver, side):
    made = fenced_memory(4 * GRAIN, CPU, readable=True, driver=driver)
    buffer = made, torch.empty_like(made.memory)
    arena = Arena("cpu")
    arena.fenced = lambda number, nbytes, *, readable: buffer
    x = torch.arange(32.0).reshape(4, 8)
    placement = place(
        {"x": spec_of(4, 8)}, {"x": x}, device="cpu", alignment=16,
        poison=Poison.NAN, arena=arena, edge=Edge(side, "x", readable=True),
    )  # fmt: skip
    assert torch.equal(placement.tensors["x"], x)
    first, stop = ends(placement.tensors["x"])
    base = made.memory.data_ptr()
    fence = first - base if side == "start" else base + made.stop - stop
    assert fence == (FENCE if side == "start" else 0)
    at = first - 4 * 3000 if side == "start" else stop + 4 * 2999
    ctypes.c_float.from_address(at).value = 1.5
    where = "before" if side == "start" else "after"
    assert placement.touches() == [Touch("x", where, 1, 3000, 4)]


def test_no_fences_are_known_where_the_driver_refuses(monkeypatch):
    refusing = FakeDriver({"create": "CUDA_ERROR_NOT_SUPPORTED"})
    monkeypatch.setattr(pages, "_driver_of", lambda device: refusing)
    pages.unavailable.cache_clear()
    assert "CUDA_ERROR_NOT_SUPPORTED" in pages.unavailable(CPU)
    monkeypatch.setattr(pages, "_driver_of", lambda device: FakeDriver())
    pages.unavailable.cache_clear()
    assert pages.unavailable(CPU) == ""
    pages.unavailable.cache_clear()
    assert backend_of(CPU).unfenced(CPU) == ""
