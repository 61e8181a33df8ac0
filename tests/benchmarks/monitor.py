"""What the monitor costs its caller.

python -m tests.benchmarks.monitor                  # microseconds a call, by rate
python -m tests.benchmarks.monitor --device cuda    # step time of the example
"""

import argparse
import importlib.util
import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import kfuzz

RATES = (0.0, 0.01, 0.5, 1.0)
EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def latency(rate: float) -> float:
    """Microseconds that a call takes longer: least of 30 blocks of 200 calls.

    At higher rates the caller waits between blocks for the checks of the last.
    """
    x = torch.randn(256)
    function = kfuzz.monitor(doubled, rate=rate, name=f"doubled at {rate}")(doubled)

    def block(call: Callable[[Tensor], Tensor]) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            call(x)
        return (time.perf_counter() - begin) / 200 * 1e6

    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(30):
        times[0].append(block(function))
        kfuzz.monitor.flush(60.0)
        times[1].append(block(doubled))
    return min(times[0]) - min(times[1])


def example(device: str, steps: int, turns: int) -> None:
    """Step time of the example in turns: plain, host gate at 1 %, device gate too.

    Each turn runs all three in random order; what is told is the median over turns of
    a turn's time over that of its plain run, with a 95 % interval by the bootstrap
    (percentiles of the medians of turns drawn anew).
    """
    spec = importlib.util.spec_from_file_location("transformer", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["transformer"] = module
    spec.loader.exec_module(module)
    size = "large" if device == "cuda" else "small"
    ways = {
        "plain": (module.launched, None),
        "1 %": (module.row_softmax, 0.0),
        "1 % and device gate": (module.row_softmax, 1.0),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    every = 1 << 30  # no batch in question
    chance = random.Random(0)
    # A check takes longer than many steps: what waits would be timed with the next way.
    kfuzz.monitor.start(pending=2)
    for turn in range(turns + 1):
        for name in chance.sample(list(ways), len(ways)):
            softmax, gate = ways[name]
            if gate is not None:
                module.gate.rate = gate
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            module.train(steps, size=size, device=device, every=every, softmax=softmax)
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:  # the first compiles
                taken[name].append((time.perf_counter() - begin) / steps)
            kfuzz.monitor.flush(60.0)
    for name, times in taken.items():
        more = [t / p - 1 for t, p in zip(times, taken["plain"], strict=True)]
        medians = sorted(
            statistics.median(chance.choices(more, k=turns)) for _ in range(2000)
        )
        low, high = medians[50], medians[-51]
        print(
            f"{name}: {1e3 * statistics.median(times):.3f} ms a step, "
            f"{100 * statistics.median(more):+.2f} % ({100 * low:+.2f} to "
            f"{100 * high:+.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--turns", type=int, default=10)
    given = parser.parse_args()
    logging.getLogger("kfuzz.monitor").setLevel(logging.CRITICAL)
    if given.device:
        example(given.device, given.steps, given.turns)
        return
    print(f"torch {torch.__version__}, {os.cpu_count()} cores")
    kfuzz.monitor.start()
    for rate in RATES:
        print(f"rate {rate:g}: {latency(rate):.1f} us a call longer", flush=True)


if __name__ == "__main__":
    main()
