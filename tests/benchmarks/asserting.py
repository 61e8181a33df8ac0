"""What `kfuzz.assert_conforms` costs beside `torch.testing.assert_close`.

    python -m tests.benchmarks.asserting [--device cuda] [--elements 20]

A row for each operator: the median of each, taken in turn, on 2^elements elements that
conform, and the ratio.
"""

import argparse
import statistics
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
    print("| operator | dtype | assert_close, ms | assert_conforms, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, function in FUNCTIONS.items():
        for dtype in (torch.float32, torch.bfloat16):
            given = x.to(dtype)
            y, scalars = function(given)
            peer = _median(lambda y=y: torch.testing.assert_close(y, y.clone()))  # type: ignore[misc]
            own = _median(
                lambda y=y, x=given, s=scalars, n=name: kfuzz.assert_conforms(
                    y, n, x, **s
                )  # type: ignore[misc]
            )
            ratio = own / peer
            print(f"| {name} | {dtype} | {peer:.1f} | {own:.1f} | {ratio:.1f} |")


FUNCTIONS: dict[str, Callable[[Tensor], tuple[Tensor, dict[str, int]]]] = {
    "relu": lambda x: (torch.relu(x), {}),
    "silu": lambda x: (torch.nn.functional.silu(x.double()).to(x.dtype), {}),
    "softmax": lambda x: (torch.softmax(x.double(), -1).to(x.dtype), {"dim": -1}),
    "sum": lambda x: (x.double().sum(-1).to(x.dtype), {"dim": -1}),
}


def _median(call: Callable[[], None]) -> float:
    """Return the median time of a call in milliseconds."""
    call()
    took = []
    for _ in range(_TURNS):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - began))
    return statistics.median(took)


if __name__ == "__main__":
    main()
