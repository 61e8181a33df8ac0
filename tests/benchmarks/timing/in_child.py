"""What is timed where kernels run: launches, screening, judging, and plain loops."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from kfuzz.contracts import relation
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.oracle import accept, pose_members
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.burst import Burst
from kfuzz.core.case_surroundings import config_of
from kfuzz.core.codec import decode
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.evaluation import calling
from kfuzz.evaluation.calling import keywords_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.prefilter import ALWAYS_ON, Prefilter
from kfuzz.evaluation.probes.second_call import is_due
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.values.fills import batch_values
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.comparator.summary import summarise
from kfuzz.targets.load import Source, load
from tests.benchmarks.peers.drawn import Limits
from tests.benchmarks.timing import plain

SERVE = "tests.benchmarks.timing.in_child:serve"
# Of each time the least of so many is taken, of what takes long fewer. What takes long
# is also what shares are stated for: their median needs some turns.
REPEATS = 7
LEAST_REPEATS = 5
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
        comparison: seconds of holding all members' results against what is admitted.
        further: whether that case is one of those that get further calls.
        shares: what the harness adds to kernel, oracle and comparison, as a share of
            these three, when "screened" and when "judged"; the median of the turns.
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
    comparison: float = 0.0
    further: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)


class Inside:
    """What oracle, error model and comparison take within a judgement."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock = clock

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count while the block runs, from 0."""
        self.seconds = 0.0
        with ExitStack() as stack:
            for owner, name in ((calling, "accept"), (relation, "compare_all")):
                timed = self._timed(getattr(owner, name))
                stack.enter_context(patch.object(owner, name, timed))
            yield

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = self._clock()
            try:
                return function(*args)
            finally:
                self.seconds += self._clock() - began

        return timed


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
        self._prefilter = Prefilter(kernel, device, ALWAYS_ON)
        classes = [c.id for c in ATTRIBUTION]
        self._bench = Evaluator(kernel, setting_of(str(device), budget, classes))
        if (around := surroundings_of(device)) is not None:
            around.prepare()

    def structure(self, burst: Burst, *, judging: bool) -> Timed:
        """Measure one structure."""
        case, members = burst.case, burst.members
        if self._device.type == "cuda" or not self.spent:
            # What is still to be imported or compiled.
            self._prefilter.screen(burst)
            if judging:
                self._bench.judge(case, Depth.BASE)
        made = self._prefilter.screen(burst)
        dtype = case.data.dtype
        if made.unsupported or made.lost:
            return Timed(dtype, members, unsupported=made.unsupported or made.lost)
        values = batch_values(burst, self._device)
        function, calls = self._kernel.function, 0
        inside = Inside(self._clock)

        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*args, **kwargs)

        def judge() -> None:
            nonlocal calls
            calls = 0
            self._kernel.function = counting
            try:
                with inside.watching():
                    self._bench.judge(case, Depth.SEARCH)
            finally:
                self._kernel.function = function

        run, results = self._calls(case, values)
        accepted = self._accept(case, values)
        runs: dict[str, Callable[[], object]] = {
            "launches": run,
            "oracle": lambda: self._accept(case, values),
            "comparison": lambda: summarise(results, accepted),
            "screened": lambda: self._prefilter.screen(burst),
        }
        if judging:
            runs["judged"] = judge
        turns = []
        for turn in self._turns(runs):
            if judging:
                turn["own"] = calls * turn["launches"] / members + inside.seconds
            turns.append(turn)
        times = {name: min(turn[name] for turn in turns) for name in runs}
        return Timed(
            dtype=dtype,
            members=members,
            **times,
            calls=calls,
            alone=times["launches"] / members,
            suspects=len(made.suspects),
            further=judging and is_due(case),
            shares=shares_of(turns),
        )

    def _clock(self) -> float:
        """Return seconds; on the CPU, which others may use besides, the processor's."""
        if self._device.type == "cuda":
            return time.perf_counter()
        return time.process_time()

    def _turns(
        self, runs: Mapping[str, Callable[[], object]]
    ) -> Iterator[dict[str, float]]:
        """Yield the times that some things take, turn by turn.

        Until the device is done with it.
        """
        total = 0.0
        for turn in range(REPEATS):
            if turn >= LEAST_REPEATS and total > LONG_SECONDS:
                break
            taken = {}
            for name, run in runs.items():
                self._wait()
                began = self._clock()
                run()
                self._wait()
                taken[name] = self._clock() - began
            total += sum(taken.values())
            yield taken
        self.spent += total

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _calls(
        self, case: Case, values: Mapping[str, Tensor]
    ) -> tuple[Callable[[], None], dict[str, Tensor]]:
        """Return what calls the kernel on each member, and the results of all.

        The members lie as the case says.
        """
        members = next(iter(values.values())).shape[0]
        tensors = [
            [placed(x[i], case.tensors[name]) for name, x in values.items()]
            for i in range(members)
        ]
        keywords = keywords_of(
            self._kernel, case, {n: x[0] for n, x in values.items()}, config_of(case)
        )

        def run() -> None:
            for given in tensors:
                self._kernel.on(*given, **keywords)

        rows = [self._kernel.on(*given, **keywords) for given in tensors]
        names = self._kernel.operator.outputs
        columns = zip(*(r if len(names) > 1 else (r,) for r in rows), strict=True)
        return run, {n: torch.stack(c) for n, c in zip(names, columns, strict=True)}

    def _accept(
        self, case: Case, values: Mapping[str, Tensor]
    ) -> dict[str, Acceptance]:
        operator, claims = self._kernel.operator, self._kernel.declaration
        return accept(operator, pose_members(operator, case, values, claims))


def shares_of(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return what the harness adds to kernel, oracle and comparison.

    Each turn is compared with itself: how fast a shared processor runs changes from one
    to the next.

    Args:
        turns: seconds of "launches", "oracle", "comparison" and "screened"; where a
            case was "judged" too, what it did itself is its "own".
    """
    made = {
        "screened": [
            t["screened"] / (t["launches"] + t["oracle"] + t["comparison"]) - 1
            for t in turns
        ],
        "judged": [t["judged"] / t["own"] - 1 for t in turns if "own" in t],
    }
    return {name: statistics.median(each) for name, each in made.items() if each}


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
    seconds = message["structure_seconds"]
    until = time.perf_counter() + seconds + COMPILE_SECONDS
    made = []
    for text in message["bursts"]:
        burst = decode(Burst, text, "burst")
        made.append(asdict(measuring.structure(burst, judging=message["judging"])))
        if measuring.spent > seconds or time.perf_counter() > until:
            break
    return made


def serve() -> Callable[[Message], Message]:
    """Return the handler of a fresh child."""
    return answer
