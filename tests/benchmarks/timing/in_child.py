"""What is timed where kernels run: launches, screening, judging, and plain loops."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peers.drawn import Limits
from torch import Tensor

from kfuzz.contracts.bench import Bench, Depth, setting_of
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.keywords import keywords_of
from kfuzz.contracts.left_open import config_of
from kfuzz.contracts.oracle import accept, pose_members
from kfuzz.contracts.screen import ALWAYS_ON, Screen
from kfuzz.core.budget import SizeBudget
from kfuzz.core.burst import Burst
from kfuzz.core.codec import decode
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.members import burst_values
from kfuzz.targets.load import Source, load
from timing import plain

SERVE = "timing.in_child:serve"
# Of each time the least of so many is taken, of what takes long fewer.
REPEATS = 5
LEAST_REPEATS = 2
LONG_SECONDS = 0.2
# For compilation, besides what is measured.
COMPILE_SECONDS = 8.0

Message = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """One structure, measured.

    Attributes:
        dtype: of its data.
        members: of the burst.
        launches: seconds of the members' calls, back to back, and nothing else.
        oracle: seconds of the oracle and error model for all members.
        screened: seconds of the whole burst, screened.
        judged: seconds of member 0, judged as a case of its own.
        calls: how often that called the kernel.
        alone: seconds of one call.
        suspects: members in which something was seen.
        unsupported: why it could not be screened, "" if it was.
    """

    dtype: str
    members: int
    launches: float = 0.0
    oracle: float = 0.0
    screened: float = 0.0
    judged: float = 0.0
    calls: int = 0
    alone: float = 0.0
    suspects: int = 0
    unsupported: str = ""


class Measuring:
    """Measures one kernel.

    Attributes:
        spent: seconds measured so far.
    """

    def __init__(
        self, kernel: BoundKernel, device: torch.device, budget: SizeBudget
    ) -> None:
        """Take a kernel.

        Args:
            kernel: the bound kernel.
            device: where it runs.
            budget: limits on what the bench derives.
        """
        self.spent = 0.0
        self._kernel = kernel
        self._device = device
        self._screen = Screen(kernel, device, ALWAYS_ON)
        classes = [c.id for c in ATTRIBUTION]
        self._bench = Bench(kernel, setting_of(str(device), budget, classes))
        if (around := surroundings_of(device)) is not None:
            around.prepare()

    def structure(self, burst: Burst, *, judging: bool) -> Timed:
        """Measure one structure.

        Args:
            burst: the structure and its members.
            judging: whether member 0 is judged too.
        """
        case, members = burst.case, burst.members
        if self._device.type == "cuda" or not self.spent:
            # What is still to be imported or compiled.
            self._screen.screen(burst)
            if judging:
                self._bench.judge(case, Depth.BASE)
        made = self._screen.screen(burst)
        dtype = case.data.dtype
        if made.unsupported or made.lost:
            return Timed(dtype, members, unsupported=made.unsupported or made.lost)
        values = burst_values(burst, self._device)
        function, calls = self._kernel.function, 0

        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*args, **kwargs)

        def judge() -> None:
            nonlocal calls
            calls = 0
            self._kernel.function = counting
            try:
                self._bench.judge(case, Depth.SEARCH)
            finally:
                self._kernel.function = function

        runs: dict[str, Callable[[], object]] = {
            "launches": self._calls(case, values),
            "oracle": lambda: self._accept(case, values),
            "screened": lambda: self._screen.screen(burst),
        }
        if judging:
            runs["judged"] = judge
        times = self._seconds(runs)
        return Timed(
            dtype=dtype,
            members=members,
            **times,
            calls=calls,
            alone=times["launches"] / members,
            suspects=len(made.suspects),
        )

    def _seconds(self, runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Return the least times that some things take, by turns.

        Until the device is done with it; on the CPU, which others may use besides, the
        processor's time.
        """
        clock = time.perf_counter
        if self._device.type != "cuda":
            clock = time.process_time
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(REPEATS):
            if turn >= LEAST_REPEATS and sum(map(sum, taken.values())) > LONG_SECONDS:
                break
            for name, run in runs.items():
                self._wait()
                began = clock()
                run()
                self._wait()
                taken[name].append(clock() - began)
        self.spent += sum(map(sum, taken.values()))
        return {name: min(each) for name, each in taken.items()}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _calls(self, case: Case, values: Mapping[str, Tensor]) -> Callable[[], None]:
        """Return what calls the kernel on each member, laid out as the case says."""
        members = next(iter(values.values())).shape[0]
        tensors = [
            [placed(x[i], case.tensors[name]) for name, x in values.items()]
            for i in range(members)
        ]
        keywords = keywords_of(self._kernel, case, config_of(case))

        def run() -> None:
            for given in tensors:
                self._kernel.on(*given, **keywords)

        run()
        return run

    def _accept(self, case: Case, values: Mapping[str, Tensor]) -> None:
        operator, claims = self._kernel.operator, self._kernel.declaration
        accept(operator, pose_members(operator, case, values, claims))


def placed(values: Tensor, spec: TensorSpec) -> Tensor:
    """Return values in memory of their own, with the strides of a recipe."""
    memory = values.new_empty(spec.offset + spec.span)
    view = memory.as_strided(spec.shape, spec.element_strides, spec.offset)
    # Elements that share memory are equal: one of them is written.
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in spec.element_strides)
    view[once].copy_(values[once])
    return view


def answer(message: Message) -> Message:
    """Measure what is asked for; see `throughput.py`."""
    torch.set_num_threads(1)
    device = torch.device(message["device"])
    source = Source(file=Path(message["file"]), only=(message["kernel"],))
    kernel = load(source, root=Path(message["root"]))[0].kernel
    match message["do"]:
        case "structures":
            budget = SizeBudget(**message["budget"])
            measuring = Measuring(kernel, device, budget)
            return {"structures": _structures(measuring, message)}
        case "plain":
            limits = Limits(**message["limits"])
            seconds, seed = message["seconds"], message["seed"]
            loop = plain.LOOPS[message["loop"]]
            return asdict(loop(kernel, device, limits, seconds, seed))
        case other:
            raise ValueError(f"unknown request {other!r}")


def _structures(measuring: Measuring, message: Message) -> Sequence[Message]:
    """Measure structures until the time is up."""
    until = time.perf_counter() + message["seconds"] + COMPILE_SECONDS
    made = []
    for text in message["bursts"]:
        burst = decode(Burst, text, "burst")
        made.append(asdict(measuring.structure(burst, judging=message["judging"])))
        if measuring.spent > message["seconds"] or time.perf_counter() > until:
            break
    return made


def serve() -> Callable[[Message], Message]:
    """Return the handler of a fresh child."""
    return answer
