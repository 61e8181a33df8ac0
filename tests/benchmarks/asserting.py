"""What `kfuzz.assert_conforms` costs beside `torch.testing.assert_close`.

    python -m tests.benchmarks.asserting [--device cuda] [--elements 20]

A row for each operator, on 2^elements elements that conform: processor time of the
comparison, of the operator in float64, and of `assert_conforms`, the least of several
turns each, and its ratio to the first two together. On a GPU wall time.
"""

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

import kfuzz

_TURNS = 7


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--elements", type=int, default=20, help="log2 of the number")
    options = parser.parse_args()
    torch.set_num_threads(1)
    side = 1 << options.elements // 2
    x = torch.randn(side, side, device=options.device)
    print("| operator | dtype | assert_close, ms | float64, ms | own, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for name, function in FUNCTIONS.items():
        for dtype in (torch.float32, torch.bfloat16):
            exact, given, scalars = function(x.to(dtype))
            y = exact().to(dtype)
            times = _least(
                lambda y=y: torch.testing.assert_close(y, y.clone()),  # type: ignore[misc]
                exact,
                lambda y=y, g=given, s=scalars, n=name: kfuzz.assert_conforms(
                    y, n, *g, **s
                ),  # type: ignore[misc]
            )
            ratio = times[2] / (times[0] + times[1])
            told = " | ".join(f"{time:.1f}" for time in times)
            print(f"| {name} | {str(dtype)[6:]} | {told} | {ratio:.1f} |")


Asked = tuple[Callable[[], Tensor], tuple[Tensor, ...], dict[str, int]]
"""An operator in float64, its tensors, and its scalars."""

F = torch.nn.functional
FUNCTIONS: dict[str, Callable[[Tensor], Asked]] = {
    "relu": lambda x: (lambda: torch.relu(x.double()), (x,), {}),
    "silu": lambda x: (lambda: F.silu(x.double()), (x,), {}),
    "softmax": lambda x: (lambda: torch.softmax(x.double(), -1), (x,), {"dim": -1}),
    "layer_norm": lambda x: (
        lambda: F.layer_norm(x.double(), x.shape[1:], x[0].double(), x[1].double()),
        (x, x[0], x[1]), {},
    ),
    "sum": lambda x: (lambda: x.double().sum(-1), (x,), {"dim": -1}),
    "cross_entropy": lambda x: (
        lambda: F.cross_entropy(x.double(), x.argmax(-1)), (x, x.argmax(-1)), {},
    ),
    "matmul": lambda x: (lambda: x.double() @ x.double(), (x, x), {}),
}  # fmt: skip


def _least(*calls: Callable[[], object]) -> list[float]:
    """Return the least time of each call in milliseconds, taken in turn."""
    least = [math.inf] * len(calls)
    for _ in range(_TURNS):
        for i, call in enumerate(calls):
            began = _now()
            call()
            least[i] = min(least[i], 1e3 * (_now() - began))
    return least


def _now() -> float:
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
