"""A kernel's own allocations: poisoned, guarded, and otherwise as torch gives them."""

import ctypes

import pytest
import torch

from kfuzz.execution.memory import allocations
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import AllocationTouch
from tests.helpers.poisoned import is_poison

X = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
MAKERS = {
    "empty": lambda: torch.empty(3, 5),
    "empty_dtype": lambda: torch.empty(3, 5, dtype=torch.float16),
    "empty_channels_last": lambda: torch.empty(
        2, 3, 4, 5, memory_format=torch.channels_last
    ),
    "empty_scalar": lambda: torch.empty(()),
    "empty_like": lambda: torch.empty_like(X),
    "empty_like_transposed": lambda: torch.empty_like(X.t()),
    "empty_like_dtype": lambda: torch.empty_like(X, dtype=torch.int64),
    "empty_strided": lambda: torch.empty_strided((3, 4), (9, 2)),
    "empty_permuted": lambda: torch.empty_permuted((2, 3, 4), (2, 0, 1)),
    "new_empty": lambda: X.new_empty(7),
    "new_empty_strided": lambda: X.new_empty_strided((2, 3), (1, 2)),
    "legacy": lambda: torch.FloatTensor(3, 5),
    "legacy_new": lambda: X.new(5),
    "bool": lambda: torch.empty(9, dtype=torch.bool),
    "complex": lambda: torch.empty(4, dtype=torch.complex64),
}


def store(tensor, offset, kind=ctypes.c_float, value=1.5):
    size = ctypes.sizeof(kind)
    kind.from_address(tensor.data_ptr() + offset * size).value = value


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("name", MAKERS)
def test_allocation_is_torchs_own_but_poisoned(name, poison):
    plain = MAKERS[name]()
    with GuardedAllocations("cpu", poison) as guard:
        made = MAKERS[name]()
    assert (made.shape, made.stride(), made.dtype, made.device) == (
        plain.shape,
        plain.stride(),
        plain.dtype,
        plain.device,
    )
    assert made.storage_offset() == 0
    assert made.untyped_storage().nbytes() == plain.untyped_storage().nbytes()
    assert made.data_ptr() % 64 == 0
    assert (made._version, made.is_leaf, made._base) == (0, True, None)
    assert is_poison(made, poison).all()
    made.fill_(1)
    assert guard.touches() == []


@pytest.mark.parametrize("name", MAKERS)
def test_bytes_next_to_any_allocation_are_guarded(name):
    with GuardedAllocations("cpu", Poison.FINITE) as guard:
        torch.empty(5)
        made = MAKERS[name]()
        torch.empty(5)
    nbytes = made.untyped_storage().nbytes()
    store(made, nbytes, ctypes.c_uint8, 3)
    store(made, -1, ctypes.c_uint8, 3)
    name = str(made.dtype)[6:]
    assert guard.touches() == [
        AllocationTouch(1, tuple(made.shape), name, "before", 1, 1),
        AllocationTouch(1, tuple(made.shape), name, "after", 1, 1),
    ]


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("distance", [1, 2, 1000])
def test_stray_store_is_reported_with_its_distance(distance, poison):
    with GuardedAllocations("cpu", poison) as guard:
        first, second = torch.empty(3, 5), torch.empty(64)
        store(first, 14 + distance)
        store(second, -distance)
    assert guard.touches() == [
        AllocationTouch(0, (3, 5), "float32", "after", 1, distance),
        AllocationTouch(1, (64,), "float32", "before", 1, distance),
    ]


def test_the_nearest_of_several_stray_stores_gives_the_distance():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        made = torch.empty(8)
        for offset in (-9, -4, 9, 30, 40):
            store(made, offset)
    assert guard.touches() == [
        AllocationTouch(0, (8,), "float32", "before", 2, 4),
        AllocationTouch(0, (8,), "float32", "after", 3, 2),
    ]


def test_memory_of_dropped_tensors_stays_guarded():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        made = torch.empty(8)
        address = made.data_ptr()
        del made
        others = [torch.empty(8).fill_(0) for _ in range(100)]
        ctypes.c_float.from_address(address + 32).value = 1.5
        assert address not in {t.data_ptr() for t in others}
    assert guard.touches() == [AllocationTouch(0, (8,), "float32", "after", 1, 1)]


def test_large_allocations_are_guarded():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        made = torch.empty(300, 1000)
        store(made, 300_000)
    assert is_poison(made, Poison.NAN).all()
    assert [(t.where, t.distance) for t in guard.touches()] == [("after", 1)]


def test_what_cannot_be_guarded_passes_through():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        assert torch.empty(0, 3).shape == (0, 3)
        assert torch.empty(3, device="meta").is_meta
        assert torch.empty(2, 2, layout=torch.sparse_coo).is_sparse
        assert torch.zeros(3).tolist() == [0, 0, 0]
    with GuardedAllocations("meta", Poison.NAN) as other:
        torch.empty(3)
    assert guard._allocations == other._allocations == []


def test_allocations_past_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(allocations, "TOTAL_BYTES", 30_000)
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        for _ in range(5):
            torch.empty(8)
    assert guard.unguarded == 2


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("start", [0, 3])
def test_resize_grows_and_stays_guarded(start, like):
    other = torch.zeros(10)
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        made = torch.empty(start)
        made.fill_(7)
        assert (made.resize_as_(other) if like else made.resize_(10)) is made
        assert made[:start].tolist() == [7] * start
        assert is_poison(made[start:], Poison.NAN).all()
        store(made, 10)
        made.resize_(2, 2)
    assert made.shape == (2, 2)
    assert guard.touches()[-1] == AllocationTouch(
        1 if start else 0, (10,), "float32", "after", 1, 1
    )


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_out_arguments_work():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        fits, grows, empty = torch.empty(4, 6), torch.empty(3), torch.empty(0)
        for out in (fits, grows, empty):
            torch.add(X.float(), 1, out=out)
            assert torch.equal(out, X.float() + 1)
    assert guard.touches() == []


def test_autograd_and_parameters_work():
    with GuardedAllocations("cpu", Poison.NAN) as guard:
        weight = torch.empty(3, requires_grad=True)
        with torch.no_grad():
            weight.fill_(2.0)
        (weight * weight).sum().backward()
        layer = torch.nn.Linear(6, 2, dtype=torch.bfloat16)
        with torch.inference_mode():
            assert torch.isfinite(layer(X)).all()
            torch.empty(3).fill_(1)
    assert weight.grad.tolist() == [4.0, 4.0, 4.0]
    assert guard.touches() == []


def test_compiled_code_runs_compiled():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def kernel(x):
        y = torch.empty_like(x)
        torch._dynamo.graph_break()
        return y.copy_(x) + 1

    with GuardedAllocations("cpu", Poison.NAN) as guard:
        for _ in range(2):
            assert torch.equal(kernel(torch.ones(4)), torch.full((4,), 2.0))
    assert len(graphs) == 2  # one before the break, one after
    assert guard.touches() == []
