"""Kernels that need a GPU where there is none: no fault of theirs, and said so."""

from collections.abc import Callable

import pytest
import torch

import kfuzz
from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.contracts import operators as ops
from kfuzz.core.errors import BackendError
from kfuzz.core.event import ContractTally, RunFinished, RunStarted
from kfuzz.core.verdict import Verdict
from kfuzz.execution.calls.results import raised_by
from kfuzz.execution.device.backends import backend_of
from tests.helpers.command_line import Engine
from tests.helpers.events import NODE, finished
from tests.helpers.findings import finding

CPU = torch.device("cpu")
SAID = [
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU "
    "and installed a driver from http://www.nvidia.com/Download/index.aspx",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "CUDA driver initialization failed, you might not have a CUDA gpu.",
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
    "before calling NumCudaDevices() that might have already set an error?",
    "CUDA error: no CUDA-capable device is detected\nCUDA kernel errors might be ...",
    "HIP error: no ROCm-capable device is detected",
    "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime "
    "version",
    "0 active drivers ([]). There should only be one.",
    "Cannot find any GPU",
    "Expected a cuda device, but got: cpu",
    "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
    "CUDA is not available",
    "no GPU found",
    "Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend.",
    "Could not run 'my::relu' with arguments from the 'CPU' backend. This could be ... "
    "'my::relu' is only available for these backends: [CUDA, Meta, AutogradCPU].",
]
UNSAID = [
    "",
    "row 3 is wrong",
    "shape mismatch on this device",
    "CUDA tensors only",
    "Could not run 'aten::relu' with arguments from the 'SparseCPU' backend. "
    "'aten::relu' is only available for these backends: [CPU, CUDA, Meta].",
    "Could not run 'my::relu' with arguments from the 'CPU' backend. "
    "'my::relu' is only available for these backends: [XLA, Meta, AutogradCUDA].",
]


@pytest.mark.parametrize("text", SAID)
def test_what_says_that_no_gpu_can_be_had_is_known(text: str) -> None:
    error = RuntimeError(text)
    assert raised_by(error, CPU).gpu == text.splitlines()[0]
    # On a GPU it is the kernel's own fault, whatever it says.
    assert backend_of(torch.device("cuda")).lack_of_gpu(error) == ""


@pytest.mark.parametrize("text", UNSAID)
def test_other_exceptions_say_nothing_of_a_gpu(text: str) -> None:
    assert raised_by(ValueError(text), CPU).gpu == ""


def test_causes_and_what_was_being_handled_count_too() -> None:
    def raised(make: Callable[[], None]) -> str:
        try:
            make()
        except Exception as error:
            return raised_by(error, CPU).gpu
        return "did not raise"

    def caused() -> None:
        try:
            torch.empty(2, device="cuda")
        except AssertionError as error:
            raise ValueError("no room") from error

    def handled() -> None:
        try:
            torch.empty(2, device="cuda")
        except AssertionError:
            raise ValueError("no room") from None

    if torch.version.cuda is None and torch.version.hip is None:
        assert raised(caused) == raised(handled) == SAID[0]
    loop = ValueError("one")
    loop.__cause__ = KeyError("two")
    loop.__cause__.__context__ = loop
    assert raised_by(loop, CPU).gpu == ""


@kfuzz.kernel(ops.relu, layouts="contiguous")
def on_cuda_alone(x: torch.Tensor) -> torch.Tensor:
    if not x.numel():
        return torch.empty_like(x)
    raise AssertionError("Torch not compiled with CUDA enabled")


@kfuzz.kernel(ops.relu)
def on_cuda_if_large(x: torch.Tensor) -> torch.Tensor:
    if x.numel() > 64:
        raise RuntimeError("No CUDA GPUs are available")
    return torch.relu(x)


def test_a_kernel_that_needs_a_gpu_is_not_accused() -> None:
    told = r"this kernel needs a GPU \(Torch not compiled .*--device cuda"
    with pytest.raises(BackendError, match=told):
        kfuzz.falsify(on_cuda_alone, max_cases=30, device="cpu")


def test_what_runs_without_a_gpu_is_judged_all_the_same() -> None:
    assert kfuzz.falsify(on_cuda_if_large, max_cases=30, device="cpu") == []


@pytest.mark.usefixtures("project")
def test_a_run_that_lacks_a_gpu_exits_with_the_backends_code(engine: Engine) -> None:
    errors = {"K-VAL-01": ContractTally(Verdict.ERROR)}
    lacking = finished(contracts=errors, needs_gpu=True)
    begun, ended = RunStarted(7, "cpu", (NODE,)), RunFinished(1.0, False, 7, "cpu")
    engine.events = [begun, lacking, ended]
    assert main(["run", "a.py"]) == ExitCode.NO_BACKEND
    engine.events = [begun, lacking, finished(finding()), ended]
    assert main(["run", "a.py"]) == ExitCode.VIOLATION
    engine.events = [begun, lacking, finished(contracts=errors), ended]
    assert main(["run", "a.py"]) == ExitCode.INTERNAL
