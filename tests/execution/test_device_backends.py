"""Device backends: how they are found by name, and what else follows from the table."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Scale, SizeBudget
from kfuzz.core.errors import BackendError
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.schedule import require
from kfuzz.engine.workers.zygotes import Backend, budget_for
from kfuzz.execution.device import backends
from kfuzz.execution.device.backends import (
    BACKENDS,
    CPU,
    GPU,
    INTERPRET,
    DeviceBackend,
    backend_of,
    environment_for,
    fault_of,
    guess,
    is_lost,
    named,
    resolve,
)
from kfuzz.execution.device.surroundings import surroundings_of
from tests.contracts.test_operator_domains import kernel_of


class Fake(DeviceBackend):
    """A device that torch knows by another name, of which two are there."""

    name = "fake"
    torch_type = "privateuseone"
    place = "on a fake device"
    has = replace(CPU.has, on_host=False, asynchronous=True)
    limits = replace(CPU.limits, sizes=SizeBudget(elements=99, rows=9), batches=None)
    environment = {"FAKE_DEVICE": "1"}  # noqa: RUF012 - read only
    numbered = True
    broken = ""

    def devices(self) -> tuple[str, ...]:
        return ("privateuseone:0", "privateuseone:1")

    def device_name(self, device: str) -> str:
        return f"Fake {device[-1]}"

    def fault(self, device: torch.device) -> str:
        return self.broken


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Register it as any other: by its line in the table."""
    made = Fake()
    monkeypatch.setitem(BACKENDS, made.name, made)
    return made


def test_a_registered_backend_is_found_by_name_number_and_device(fake: Fake) -> None:
    first, second = fake.devices()
    assert resolve("fake") == (fake, (first, second))
    assert resolve("fake:1") == (fake, (second,))
    assert named("fake:1") is named(second) is backend_of(second) is fake
    assert backend_of(torch.device(second)) is fake
    assert guess("fake") is fake
    with pytest.raises(BackendError, match="no device 'fake:2': torch sees 2 FAKE"):
        resolve("fake:2")
    with pytest.raises(BackendError, match="fake, fake:i, interpret"):
        resolve("false")


def test_everything_else_asks_the_object(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = Backend("fake", isolate="none")
    assert (used.name, used.device, len(used.devices)) == ("fake", "privateuseone:0", 2)
    assert budget_for(kernel_of(ops.relu), "fake") == SizeBudget(elements=99, rows=9)
    device = torch.device(used.device)
    assert fault_of(device) == ""
    assert surroundings_of(device) is None
    monkeypatch.setattr(Fake, "broken", "asserted")
    assert is_lost(device)
    assert fault_of(device) == "asserted"
    with pytest.raises(BackendError, match="on the backend 'fake'"):
        require(RunConfig((), Path(), Path(), scale=Scale.LARGE), fake)


def test_children_get_what_their_own_backend_sets(fake: Fake) -> None:
    outer = {"A": "b", "TRITON_INTERPRET": "1", "FAKE_DEVICE": "0"}
    assert environment_for(CPU, outer) == {"A": "b"}
    assert environment_for(INTERPRET, outer) == {"A": "b", "TRITON_INTERPRET": "1"}
    assert environment_for(fake, outer) == {"A": "b", "FAKE_DEVICE": "1"}


@pytest.mark.parametrize(("there", "wanted"), [(2, GPU), (0, INTERPRET)])
def test_auto_takes_a_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, there: int, wanted: object
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    backend, devices = resolve("auto")
    assert backend is wanted
    assert devices == (("cuda:0", "cuda:1") if there else ("cpu",))
    if there:
        assert resolve("cuda:1") == (GPU, ("cuda:1",))
    else:
        with pytest.raises(BackendError, match="torch sees no CUDA GPU"):
            resolve("cuda")


def test_a_tensors_device_is_answered_for_by_the_native_backend() -> None:
    assert backend_of("cpu") is CPU
    assert backend_of(torch.device("cuda", 3)) is GPU
    assert backend_of("meta") is CPU
    assert named("interpret") is INTERPRET
    assert [b.name for b in backends.sharing("cpu")] == ["interpret", "cpu"]
