"""The child's side: loads one kernel and answers requests about cases."""

import faulthandler
import io
import mmap
import signal
import time
from contextlib import nullcontext
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import Burst, Depth, Scale, SizeBudget
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind, Signature
from kfuzz.evaluation.diagnosis import Builder
from kfuzz.evaluation.drawing import batches_of, drawn, sizes_in_code, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, observe, setting_of
from kfuzz.evaluation.prefilter import Prefilter
from kfuzz.execution.calls.compiling import Watchdog, watch, watch_compilations
from kfuzz.execution.device import simulated
from kfuzz.execution.device.backends import Batches, backend_of
from kfuzz.execution.device.simulated import answered_apart
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.watch import interpreting, stay_corrected
from kfuzz.execution.processes.wire import is_child, limit_memory
from kfuzz.targets.load import load, meets_gpu, requested
from kfuzz.targets.own_code import launches_no_triton

# Bytes of the pulse; its first byte counts kernel calls modulo 256, its second who
# has the process, as a `Holder`, its third counts, modulo 256, what shows that an
# interpreted call gets on, its fourth whether something is being compiled. What
# follows in its file are stacks, written when the signal comes.
PULSE_BYTES: Final = 8
CALL_BYTES: Final = 2
COMPILING_BYTE: Final = 3
STACK_SIGNAL: Final = signal.SIGUSR2

Reply = dict[str, Any]


class Worker:
    """Answers requests about one kernel: "open" it, "judge", "observe" and others."""

    def __init__(self) -> None:
        self._evaluator: Evaluator | None = None
        self._pulse: mmap.mmap | None = None
        self._stacks: io.FileIO | None = None
        self._unfenced = ""
        self._meets_gpu = False

    def __call__(self, message: dict[str, Any]) -> Reply:
        """Answer a request: "do" names a method, all else are its arguments."""
        given = dict(message)
        simulated.meet(self._meets_gpu)
        watch_compilations()  # Triton may have been imported since
        try:
            answer: Reply = getattr(self, given.pop("do"))(**given)
            return answer
        finally:  # whatever else runs in this process meets none
            simulated.meet(False)

    def judge(
        self,
        case: Case,
        depth: Depth,
        *,
        sizes: bool = True,
        sought: Kind | None = None,
    ) -> Reply:
        """Run and judge a case; say whether its sizes may be why it fails."""
        evaluator = self._need()
        evaluator.of_sizes, evaluator.sought = sizes, sought
        report = evaluator.judge(case, depth)
        return {"report": report, "spent": evaluator.spent}

    def screen(self, burst: Burst) -> Reply:
        """Prefilter a batch."""
        return {"screened": self._prefilter.screen(burst)}

    def generate(
        self,
        *,
        budget: SizeBudget,
        without: frozenset[str],
        scale: Scale,
        batches: tuple[Batches, int] | None = None,
        **how: Any,
    ) -> Reply:
        """Draw cases, or batches of them, as `drawn` does.

        Args:
            budget: limits on their sizes.
            without: declared data types that are not drawn.
            scale: which sizes are searched.
            batches: for batches, what `batches_of` takes.
            how: as of `drawn`.
        """
        kernel = self._need().kernel
        strategy = strategy_of(kernel, budget, without=without, scale=scale)
        assert strategy is not None
        if batches is not None:
            return {"drawn": drawn(batches_of(kernel, strategy, *batches), **how)}
        return {"drawn": drawn(strategy, **how)}

    def pin(self, case: Case) -> Reply:
        """Make all values of a case explicit."""
        return {"case": self._need().pin(case)}

    def observe(self, case: Case, times: int) -> Reply:
        """Run a case some times, and judge nothing."""
        evaluator = self._need()
        observed = observe(evaluator, case, times)
        return {"observed": observed, "spent": evaluator.spent}

    def locate(
        self, cases: list[Case], signature: Signature, seconds: float, root: str,
        repair: bool,
    ) -> Reply:  # fmt: skip
        """Find the line that a failure of the first case comes from, and mend it."""
        from kfuzz.evaluation.locating import Located, Locating  # seldom needed

        began = time.monotonic()
        end = began + seconds
        made = Locating(self._need(), signature, Path(root))
        line = made.line(cases, began + seconds / 2 if repair else end)
        return {"located": Located(line, made.drafts(end) if repair else (), made.why)}

    def adopt(self, evaluator: Evaluator) -> None:
        """Serve a kernel that is loaded."""
        self._evaluator = evaluator
        # Remembered as they are before a call changes what the code names.
        sizes_in_code(evaluator.kernel)
        self._meets_gpu = interpreting() and not launches_no_triton(evaluator.kernel)

    def open(self, **message: Any) -> Reply:
        """Load a kernel and get ready to call it."""
        source = requested(message)
        device = torch.device(message["device"])
        backend = backend_of(device)
        if self._evaluator is None:
            if backend.has.on_host:
                limit_memory()  # a context maps far more than it takes
            if is_child():
                stay_corrected()
            # Before the user's file: on a broken device its import would be reported.
            if (why := backend.ailment(device)) is not None:
                return {"ailment": why}
            try:
                loaded = load(source, root=Path(message["root"]))
            except KfuzzError as error:
                return {"problem": str(error)}
            setting = setting_of(
                message["device"],
                SizeBudget(**message["budget"]),
                select_classes(message["classes"], ()),
                fences=message["fences"],
                probes=message["probes"],
            )
            evaluator = Evaluator(loaded[0].kernel, setting)
            evaluator.builds = _building(message)
            self.adopt(evaluator)
            simulated.meet(self._meets_gpu)
            if message["fences"] and not setting.fences:
                self._unfenced = backend.unfenced(setting.device)
            if (around := surroundings_of(device)) is not None:
                around.prepare()
            if message["pulse"]:
                self._beat_into(message["pulse"])
        return {
            "device": backend.device_name(message["device"]),
            "flags": backend.flags() + simulated.described(),
            "unfenced": self._unfenced if message["fences"] else "",
            "free": None if backend.has.on_host else backend.free_bytes(device),
        }

    def _beat_into(self, path: str) -> None:
        file = open(path, "r+b", buffering=0)  # noqa: SIM115 - signals write to it
        pulse = mmap.mmap(file.fileno(), PULSE_BYTES)
        file.seek(PULSE_BYTES)
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)

        def advance(place: int) -> None:
            pulse[place] = (pulse[place] + 1) % 256

        self._pulse, self._stacks = pulse, file
        self._need().on_run = beat = partial(advance, 0)
        watch(
            Watchdog(
                beats=beat,
                compiling=partial(pulse.__setitem__, COMPILING_BYTE),
                holder=partial(pulse.__setitem__, 1),
                advances=partial(advance, CALL_BYTES),
            )
        )

    @cached_property
    def _prefilter(self) -> Prefilter:
        """What screens bursts of the kernel that is open."""
        evaluator = self._need()
        setting = evaluator.setting
        made = Prefilter(evaluator.kernel, setting.device, setting.classes)
        made.on_run = lambda: evaluator.on_run()
        return made

    def _need(self) -> Evaluator:
        if self._evaluator is None:
            raise ValueError("no kernel is open")
        return self._evaluator


def _building(opened: dict[str, Any]) -> Builder:
    """Return what compiles for other GPUs, in a process begun with the first case."""

    @cache
    def builder() -> Builder:
        from kfuzz.evaluation.building import Builder  # seldom needed

        return Builder(opened)

    return lambda case, step: builder()(case, step)


def prepare(message: dict[str, Any]) -> Reply:
    """Import a user's file in a template, from which its children are forked.

    Args:
        message: what "open" is given, with an empty name.

    Raises:
        KfuzzError: if it cannot be imported.
    """
    source = requested(message)
    torch.set_num_threads(1)  # a pool of threads would hang its children
    with nullcontext() if meets_gpu(source) else answered_apart():
        load(source, root=Path(message["root"]))
    return {}


def serve() -> Worker:
    """Return the handler of a fresh child."""
    # Small tensors gain nothing from threads, and children that run side by side
    # would spin against each other (measured: 60 ms a case for 8).
    torch.set_num_threads(1)
    return Worker()
