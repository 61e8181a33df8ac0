"""The monitor beside cuda-kernel-verifier, and what it costs over time.

    python -m tests.benchmarks.monitor                  # the table, both in one run
    python -m tests.benchmarks.monitor --soak 600       # a checker ten times too slow
    python -m tests.benchmarks.monitor --device cuda    # step time of the example

The verifier is in monitor_requirements.txt; without it its column is empty. Each cell
is measured in a process of its own.
"""

import argparse
import importlib.util
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kfuzz
from kfuzz.monitor import Centroid, DeviceGate
from kfuzz.monitor.detectors import statistics_of

TOOLS = ("kfuzz", "verifier")
RATES = (0.0, 0.01, 0.5, 1.0)
MODULE = "tests.benchmarks.monitor"
EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"


class Kfuzz:
    """A function under kfuzz's monitor."""

    def __init__(self, rate: float) -> None:
        kfuzz.monitor.start()
        self.rate = rate
        self.alarms = 0

    def watch(self, reference: Any, function: Any, **given: Any) -> Any:
        """Return the function, monitored."""
        return kfuzz.monitor(
            reference, rate=self.rate, on_violation=self._count,
            name=getattr(function, "__name__", "f"), **given,
        )(function)  # fmt: skip

    def _count(self, violation: Any) -> None:
        self.alarms += 1

    def settle(self) -> int:
        """Wait for the checks; returns the alarms so far."""
        kfuzz.monitor.flush(60.0)
        return self.alarms


class Verifier:
    """A function under cuda-kernel-verifier."""

    def __init__(self, rate: float) -> None:
        from cuda_kernel_verifier import EquivalenceChecker

        self._checker = EquivalenceChecker
        self._checker.start(execution_sample_probability=rate)
        self.alarms = 0

    def watch(self, reference: Any, function: Any, **given: Any) -> Any:
        """Return the function, monitored; the verifier takes no declarations."""
        from cuda_kernel_verifier import equivalent

        return equivalent(reference, self._count)(function)

    def _count(self, given: Any) -> None:
        self.alarms += 1

    def settle(self) -> int:
        """Wait for the checks; returns the alarms so far."""
        until = time.monotonic() + 60.0
        while not self._checker._execution_queue.empty() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)  # the last check
        return self.alarms


def made(tool: str, rate: float) -> "Kfuzz | Verifier":
    return Kfuzz(rate) if tool == "kfuzz" else Verifier(rate)


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def wrong(x: Tensor) -> Tensor:
    return x * 2.0 + (x > 1.0)


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def latency(tool: str, rate: float) -> str:
    """Microseconds that a call takes longer: least of 30 blocks of 200 calls.

    At higher rates the caller waits between blocks for the checks of the last.
    """
    watching = made(tool, rate)
    x = torch.randn(256)
    function = watching.watch(doubled, doubled)

    def block(call: Callable[[Tensor], Tensor]) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            call(x)
        return (time.perf_counter() - begin) / 200 * 1e6

    for _ in range(20):
        function(x)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(30):
        times[0].append(block(function))
        watching.settle() if tool == "kfuzz" else _drained()
        times[1].append(block(doubled))
    return f"{min(times[0]) - min(times[1]):.1f} us"


def _drained() -> None:
    from cuda_kernel_verifier import EquivalenceChecker

    while not EquivalenceChecker._execution_queue.empty():
        time.sleep(0.001)


def memory(tool: str) -> str:
    """Greatest growth over 1000 calls on a MiB each, with checks of 50 ms."""

    def slow(x: Tensor) -> Tensor:
        time.sleep(0.05)
        return x * 2.0

    watching = made(tool, 1.0)
    function = watching.watch(slow, doubled)
    function(torch.randn(1 << 18))
    before, most = resident(), 0
    for _ in range(1000):
        function(torch.randn(1 << 18))
        most = max(most, resident() - before)
        time.sleep(0.001)
    return f"{most / 2**20:.0f} MiB"


def overwritten(tool: str) -> str:
    """Violations missed of 200 whose inputs are overwritten after the call."""
    watching = made(tool, 1.0)
    function = watching.watch(doubled, wrong)
    for i in range(200):
        x = torch.full((64,), 2.0 + i)
        function(x)
        x.fill_(0.0)
        time.sleep(0.002)
    return f"{200 - watching.settle()} of 200"


def reused(tool: str) -> str:
    """False alarms of 200 calls of a correct kernel whose input buffer is reused."""
    watching = made(tool, 1.0)
    function = watching.watch(doubled, doubled)
    x = torch.empty(64)
    for i in range(200):
        x.fill_(float(i))
        function(x)
    return f"{watching.settle()} of 200"


def inplace(tool: str) -> str:
    """False alarms of 200 calls of a correct kernel in place."""
    watching = made(tool, 1.0)

    def reference(x: Tensor) -> Tensor:
        return x.mul(2.0)

    function = watching.watch(reference, lambda x: x.mul_(2.0), inplace="x")
    for i in range(200):
        function(torch.full((64,), 1.0 + i))
    return f"{watching.settle()} of 200"


def outliers(tool: str) -> str:
    """Share of 3000 ordinary Gaussian batches that are flagged."""
    draw = torch.Generator().manual_seed(0)
    batches = [torch.randn(64, 32, generator=draw) for _ in range(3000)]
    if tool == "verifier":
        import cuda_kernel_verifier as verifier

        detector = verifier.ExponentialRunningCentroidExecutionOutlierDetector()
        flags = sum(bool(detector.is_outlier(x)) for x in batches)
        return f"{flags / 30:.1f} %"
    centroid, gate = Centroid(0.01), DeviceGate(0.01, on_cpu=True)
    one = sum(centroid.flags([statistics_of(x)]) for x in batches)
    other = sum(gate.flags([x]) for x in batches)
    return f"{one / 30:.1f} % (detector), {other / 30:.1f} % (gate)"


def returning(tool: str) -> str:
    """What becomes of callers whose function returns a tuple, a dict, a 0-d tensor."""
    forms: dict[str, Callable[[Tensor], Any]] = {
        "tuple": lambda x: (x * 2.0, x.amax(0)),
        "dict": lambda x: {"y": x * 2.0},
        "0-d": lambda x: x.sum(),
    }
    watching, lost = made(tool, 1.0), []
    for name, function in forms.items():
        watched = watching.watch(function, function, **_named(tool, name))
        try:
            for _ in range(5):
                watched(torch.randn(4, 4))
        except Exception as error:
            lost.append(f"{name}: {type(error).__name__} in the caller")
    alarms = watching.settle()
    return "; ".join(lost) or f"judged, {alarms} false alarms"


def _named(tool: str, name: str) -> dict[str, Any]:
    return {"outputs": ("y", "m")} if tool == "kfuzz" and name == "tuple" else {}


def compiled(tool: str) -> str:
    """Graph breaks of a compiled caller, and violations seen of 20."""
    watching = made(tool, 1.0)
    function = watching.watch(doubled, wrong)

    def step(x: Tensor) -> Tensor:
        return function(x.sin() + 2.0) + 1.0

    x = torch.ones(16)
    breaks = torch._dynamo.explain(step)(x).graph_break_count
    before = watching.settle()
    torch._dynamo.reset()
    fast = torch.compile(step, backend="eager")
    for _ in range(20):
        fast(x)
    return f"{breaks} breaks, {watching.settle() - before} of 20 seen"


def mismatched(tool: str) -> str:
    """Results of another dtype or shape that are seen."""
    cases: dict[str, Callable[[Tensor], Tensor]] = {
        "float64": lambda x: (x * 2.0).double(),
        "float16": lambda x: (x * 2.0).half(),
        "shape": lambda x: (x * 2.0)[None],
    }
    seen, x = [], torch.arange(8.0)
    for name, function in cases.items():
        watching = made(tool, 1.0)
        watched = watching.watch(doubled, function)
        for _ in range(3):
            watched(x)
        seen.append(f"{name} {'yes' if watching.settle() else 'no'}")
    return ", ".join(seen)


def gradients(tool: str) -> str:
    """Wrong gradients seen of 20, `backward` of an autograd.Function monitored."""
    watching = made(tool, 1.0)

    def lenient(ctx: Any, grad: Tensor) -> Tensor:
        return grad * (ctx.saved_tensors[0] > -0.1)

    def reference(ctx: Any, grad: Tensor) -> Tensor:
        return grad * (ctx.saved_tensors[0] > 0.0)

    if tool == "kfuzz":
        backward = watching.watch(
            "relu.backward", lenient,
            arguments=lambda ctx, grad: (ctx.saved_tensors[0], grad),
        )  # fmt: skip
    else:
        backward = watching.watch(reference, lenient)

    class Relu(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.relu()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return backward(ctx, *grads)

    for _ in range(20):
        x = torch.linspace(-1.0, 1.0, 64, requires_grad=True)
        Relu.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    return f"{watching.settle()} of 20"


ROWS: dict[str, Callable[[str], str]] = {
    **{
        f"latency at rate {rate:g}": lambda tool, rate=rate: latency(tool, rate)
        for rate in RATES
    },
    "peak memory, slow checker": memory,
    "violations missed, inputs overwritten": overwritten,
    "false alarms, reused buffer": reused,
    "false alarms, in place": inplace,
    "ordinary batches flagged": outliers,
    "tuple, dict, 0-d results": returning,
    "compiled code": compiled,
    "mismatches seen": mismatched,
    "wrong gradients seen": gradients,
}


def cell(row: str, tool: str) -> str:
    """Measure one cell in a process of its own."""
    command = [sys.executable, "-m", MODULE, "--cell", row, tool]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    return lines[-1] if lines else f"failed: {done.stderr.strip().splitlines()[-1:]}"


def table() -> None:
    there = importlib.util.find_spec("cuda_kernel_verifier") is not None
    print("| | kfuzz | cuda-kernel-verifier |\n|---|---|---|")
    for row in ROWS:
        cells = [cell(row, "kfuzz"), cell(row, "verifier") if there else ""]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


def soak(seconds: float) -> None:
    """Call at full rate with a checker ten times too slow, and look at what grows."""
    period = 0.002

    def slow(x: Tensor) -> Tensor:
        time.sleep(10 * period)  # each time that it runs, for one check or more
        return x * 2.0

    kfuzz.monitor.start()
    function = kfuzz.monitor(slow, rate=1.0, name="soaked")(doubled)
    x = torch.randn(1 << 14)

    def rate_of(call: Callable[[Tensor], Tensor], length: float) -> float:
        """Calls a second of a caller that makes one each period, if it can."""
        begin = due = time.monotonic()
        calls = 0
        while time.monotonic() - begin < length:
            call(x)
            calls += 1
            due += period
            time.sleep(max(0.0, due - time.monotonic()))
        return calls / (time.monotonic() - begin)

    part = seconds / 10
    plain = rate_of(doubled, part)
    rate_of(function, part / 2)  # the ring fills
    print(f"without monitor {plain:.0f} calls/s")
    start = resident()
    for i in range(10):
        rate = rate_of(function, part)
        counts = function.monitor.statistics()
        grown = (resident() - start) / 2**20
        print(
            f"part {i + 1}: {rate:.0f} calls/s, memory {grown:+.1f} MiB, seen "
            f"{counts.seen}, checked {counts.checked}, dropped {counts.dropped}, "
            f"violations {counts.violations}, errors {counts.errors}",
            flush=True,
        )
    kfuzz.monitor.stop(5.0)


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
    print(json.dumps({"counts": str(module.row_softmax.monitor.statistics())}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--soak", type=float)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--cell", nargs=2)
    given = parser.parse_args()
    logging.getLogger("kfuzz.monitor").setLevel(logging.CRITICAL)
    if given.cell:
        row, tool = given.cell
        threading.excepthook = lambda args: None
        print(ROWS[row](tool), flush=True)
        os._exit(0)  # no tool's queue is waited for
    elif given.soak:
        soak(given.soak)
    elif given.device:
        example(given.device, given.steps, given.turns)
    else:
        print(f"torch {torch.__version__}, {os.cpu_count()} cores")
        table()


if __name__ == "__main__":
    main()
