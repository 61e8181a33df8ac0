"""What a kernel leaves changed of torch's own state is put back, and told."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.execution.calls import torch_state
from tests.helpers.judged_cases import judged, x_case

CHANGES: dict[str, Callable[[], object]] = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("meta"),
    "the number of threads": lambda: torch.set_num_threads(3),
    "grad mode": lambda: torch._C._set_grad_enabled(not torch.is_grad_enabled()),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "subnormals": lambda: torch.set_flush_denormal(True),
    "fp32_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_put_back(name: str) -> None:
    before = torch_state.state()
    CHANGES[name]()
    told = torch_state.restore(before)
    assert torch_state.state() == before
    assert any(name in text for text in told), told
    assert not torch_state.restore(before)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("classes", [{"K-VAL-01"}, {"K-VAL-01", "C-ORD-03"}])
def test_a_kernel_that_changes_a_setting_conforms(classes: set[str]) -> None:
    """Also one that was called by several threads at once."""

    def careless(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return torch.relu(x)

    case = x_case("randn", (4, 5))
    for depth in (Depth.FULL, Depth.SEARCH):
        report = judged(ops.relu, careless, case, classes=classes, depth=depth)
        assert report.failure is None
        assert report.verdicts["K-VAL-01"] == "conforms"
        assert any("the default dtype" in note for note in report.notes)
        assert torch.get_default_dtype() is torch.float32
