"""Questions about GPUs while a file is imported: answered, and by another process."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from kfuzz.execution.device.simulated import answered_apart


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have torch see two devices; the list tells which processes asked the driver."""
    asked: list[int] = []
    cuda = torch.cuda
    found = [
        SimpleNamespace(name=f"Chip {n}", major=9, minor=n, multi_processor_count=7 + n)
        for n in range(2)
    ]

    def properties(device: object = None) -> SimpleNamespace:
        asked.append(os.getpid())
        return found[int(device or 0)]  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "get_device_properties", properties)
    monkeypatch.setattr(cuda, "get_device_name", lambda device=None: "the real one")
    return asked


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_another_process_asks(two_devices: list[int]) -> None:
    kept = torch.cuda.get_device_name
    with answered_apart():
        cuda = torch.cuda
        assert (cuda.is_available(), cuda.device_count()) == (True, 2)
        assert cuda.get_device_name() == "Chip 0"
        assert cuda.get_device_name(torch.device("cuda:1")) == "Chip 1"
        assert cuda.get_device_name("cuda:1") == "Chip 1"
        assert cuda.get_device_capability(1) == (9, 1)
        assert cuda.get_device_properties(1).multi_processor_count == 8
        captured = cuda.get_device_name
    assert two_devices == []  # none of it was asked in this process
    assert torch.cuda.get_device_name is kept
    assert captured() == "the real one"  # whoever keeps it is told the truth later


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_triton_is_answered_as_well(
    two_devices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class CudaUtils:
        """As in Triton's driver: one object, with functions of C as attributes."""

        def __init__(self) -> None:
            def properties(device: int) -> dict[str, int]:
                asked.append(os.getpid())
                return {"max_shared_mem": 1000 + device}

            self.get_device_properties = properties

    from triton.runtime import driver as config

    active = SimpleNamespace(utils=CudaUtils())
    monkeypatch.setattr(config, "_active", active)
    backend = ModuleType("triton.backends.nvidia.driver")
    backend.CudaUtils = CudaUtils  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.backends.nvidia.driver", backend)
    CudaUtils.instance = active.utils  # type: ignore[attr-defined]
    own = active.utils.get_device_properties
    with answered_apart():
        assert active.utils.get_device_properties(1) == {"max_shared_mem": 1001}
        later = CudaUtils()
        assert later.get_device_properties(0) == {"max_shared_mem": 1000}
        assert asked == []  # another process asked
    assert active.utils.get_device_properties is own
    assert later.get_device_properties(0) == {"max_shared_mem": 1000}
    assert asked == [os.getpid()]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_file_that_chooses_its_devices_is_answered_for_those(
    two_devices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.cuda,
        "device_count",
        lambda: 1 if os.environ.get("CUDA_VISIBLE_DEVICES") == "1" else 2,
    )
    with answered_apart():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert torch.cuda.device_count() == 1
