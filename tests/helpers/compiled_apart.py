"""A process that compiles Triton kernels for a GPU that is not there.

    python -m tests.helpers.compiled_apart ahead|judged

It prints how often the compiler ran and how often something was launched, as JSON.
Launches do nothing. What is compiled lies in the cache that TRITON_CACHE_DIR names.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.evaluation.ahead import compile_for
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.calls.phases import Phases
from tests.helpers.budgets import SIZE_BUDGETS

SHAPES = ((2, 5), (3, 16), (4, 40), (2, 130), (1, 64))


class Driver:
    """What Triton asks of a driver, for a device that does nothing."""

    def __init__(self) -> None:
        self.launched = 0
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=lambda *args: (object(), object(), 32, 0, 1024),
            unload_module=lambda module: None,
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*args: Any) -> None:
            self.launched += 1

        return launch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@triton.jit
def softmax_row(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * n + at, power / tl.sum(power, 0), mask=at < n)


@kernel(ops.softmax, layouts="contiguous", name="softmax_compiled_apart")
def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    y = torch.empty_like(x)
    rows, n = x.shape
    softmax_row[(rows,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


def main(mode: str) -> None:
    made = Driver()
    driver.set_active(made)  # type: ignore[arg-type]
    setting = setting_of("cpu", SIZE_BUDGETS["cpu"], ["K-VAL-01"])
    evaluator, phases = Evaluator(softmax, setting), Phases()
    phases.begin()
    for shape in SHAPES:
        spec = TensorSpec(shape, ("d0", "d1"), "float32", fill=Fill("randn", 7))
        case = Case({"x": spec}, {"dim": -1})
        if mode == "ahead":
            assert compile_for(evaluator, case)
        else:
            evaluator.judge(case, Depth.BASE)
    compiled = phases.end().compiled
    json.dump({"compiled": compiled, "launched": made.launched}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
