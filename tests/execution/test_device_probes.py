"""What kfuzz asks of a GPU beyond torch, as far as that needs no GPU."""

from unittest.mock import MagicMock

import pytest
import torch

from kfuzz.core.errors import HarnessError
from kfuzz.cuda import code
from kfuzz.cuda.driver import (
    Runtime,
)
from kfuzz.execution.device import surroundings
from kfuzz.execution.device.surroundings import (
    POISON_BYTES,
    Company,
    Surroundings,
)
from kfuzz.execution.memory.poison import Poison

GPU = torch.device("cuda", 0)
FORMATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
)


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
    around = Surroundings(GPU, Runtime(MagicMock(), "cuda"))
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
    around = Surroundings(GPU, Runtime(MagicMock(), "cuda"))
    around.poison(Poison.NAN)
    around.poison(Poison.NAN)
    assert len(calls) == 1
    assert len(around.lacking) == 1
    monkeypatch.setattr(surroundings, "is_lost", lambda device: True)
    with pytest.raises(RuntimeError):  # a lost device is no peculiarity of one
        Surroundings(GPU, Runtime(MagicMock(), "cuda")).poison(Poison.NAN)
