"""What kfuzz asks of a GPU beyond torch, as far as that needs no GPU."""

from typing import Any

import pytest
import torch

from kfuzz.core.errors import HarnessError
from kfuzz.cuda import code
from kfuzz.cuda.driver import (
    LAUNCH_ERRORS,
    Runtime,
    find_runtime,
    forget_errors,
    take_unchecked,
)
from kfuzz.execution.device import surroundings
from kfuzz.execution.device.surroundings import (
    POISON_BYTES,
    Company,
    Surroundings,
    free_ranges,
)
from kfuzz.execution.memory.poison import Poison

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
INVALID_VALUE, INVALID_CONFIGURATION, NOT_READY = 1, 9, 600
FORMATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)


class Function:
    """A function of a ctypes library."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


class Library:
    """A runtime with one pending error."""

    def __init__(self, prefix: str = "cuda", pending: int = 0) -> None:
        self.pending, self.fills = pending, []
        for name, call in {
            "PeekAtLastError": lambda: self.pending,
            "GetLastError": self._take,
            "GetErrorName": lambda code: f"error{code}".encode(),
            "GetErrorString": lambda code: f"means {code}".encode(),
            "MemsetAsync": self._fill,
        }.items():
            setattr(self, prefix + name, Function(call))

    def _take(self) -> int:
        pending, self.pending = self.pending, 0
        return pending

    def _fill(self, *args: int) -> int:
        self.fills.append(args)
        return INVALID_VALUE if args[2] > 100 else 0


def maps(*paths: str) -> str:
    return "".join(
        f"7f00-7f10 r-xp 00000000 08:01 42  {p}\n7f-8f rw-p\n" for p in paths
    )


def test_the_runtime_is_the_one_that_torch_depends_on() -> None:
    paths = ("/other/libcudart.so.12", "/torch/lib/libtorch_cuda.so", "/a/libc.so.6")
    opened = []

    def load(path: str) -> Library:
        opened.append(path)
        return Library()

    assert find_runtime(maps(*paths), load) is not None
    assert opened == ["/torch/lib/libtorch_cuda.so"]


@pytest.mark.parametrize("code", sorted(LAUNCH_ERRORS))
def test_a_failed_launch_is_taken_once(code: int) -> None:
    runtime = Runtime(Library(pending=code), "cuda")
    left = take_unchecked(runtime)
    assert left is not None
    assert (left.name, left.text) == (f"error{code}", f"means {code}")
    assert left.certain
    assert take_unchecked(runtime) is None


def test_an_invalid_argument_may_be_a_query_s() -> None:
    left = take_unchecked(Runtime(Library(pending=INVALID_VALUE), "cuda"))
    assert left is not None
    assert not left.certain


def test_what_is_no_launch_is_cleared_and_not_charged() -> None:
    runtime = Runtime(Library(pending=NOT_READY), "cuda")
    assert take_unchecked(runtime) is None
    assert runtime.last_error() == 0


def test_what_an_earlier_call_left_is_forgotten() -> None:
    runtime = Runtime(Library(pending=INVALID_CONFIGURATION), "cuda")
    forget_errors(runtime)
    assert take_unchecked(runtime) is None
    forget_errors(None)
    assert take_unchecked(None) is None


def segment(*blocks: tuple[int, int, str], device: int = 0, pool: int = 0) -> Any:
    return {
        "device": device,
        "segment_pool_id": (0, pool),
        "blocks": [{"address": a, "size": n, "state": s} for a, n, s in blocks],
    }


SNAPSHOT = [
    segment((0, 4096, "inactive"), (4096, 512, "active_allocated")),
    segment((10_000, 512, "inactive"), (10_512, 512, "active_awaiting_free")),
    segment((20_000, 1024, "inactive"), device=1),
    segment((30_000, 1024, "inactive"), pool=3),
]


def test_free_memory_is_what_the_allocator_has_inactive() -> None:
    assert free_ranges(SNAPSHOT, 0) == [(10_000, 512), (0, 4096)]
    assert free_ranges(SNAPSHOT, 1) == [(20_000, 1024)]
    assert free_ranges([], 0) == []


@pytest.mark.parametrize("dtype", FORMATS)
def test_bytes_of_poison_are_poison_in_every_format(dtype: torch.dtype) -> None:
    def read(poison: Poison) -> float:
        raw = torch.full((dtype.itemsize,), POISON_BYTES[poison], dtype=torch.uint8)
        return float(raw.view(dtype).to(torch.float64))

    assert read(Poison.NAN) != read(Poison.NAN)
    assert 100 < read(Poison.FINITE) < float("inf")


def test_without_a_compiler_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise HarnessError("cuda-bindings are not installed")

    monkeypatch.setattr(code, "bindings", missing)
    around = Surroundings(GPU, Runtime(Library(), "cuda"))
    around.prepare()
    around.prepare()
    assert around.begin(Company.NONE, Poison.NAN)
    assert not around.begin(Company.HELD, Poison.NAN)
    [line] = around.lacking
    assert "shared memory is not poisoned" in line
    assert "cuda-bindings" in line


def test_an_allocator_that_tells_nothing_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def refuse(*args: object) -> int:
        calls.append(args)
        raise RuntimeError("cudaMallocAsync does not support this")

    monkeypatch.setattr(surroundings, "poison_free", refuse)
    monkeypatch.setattr(surroundings, "poison_shared", lambda *args: None)
    monkeypatch.setattr(surroundings, "is_lost", lambda device: False)
    around = Surroundings(GPU, Runtime(Library(), "cuda"))
    around.poison(Poison.NAN)
    around.poison(Poison.NAN)
    assert len(calls) == 1
    assert len(around.lacking) == 1
    monkeypatch.setattr(surroundings, "is_lost", lambda device: True)
    with pytest.raises(RuntimeError):  # a lost device is no peculiarity of one
        Surroundings(GPU, Runtime(Library(), "cuda")).poison(Poison.NAN)
