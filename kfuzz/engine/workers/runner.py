"""The campaign's side of one kernel: cases go out, reports come back."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Final,
    ParamSpec,
    TypeVar,
)

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.arithmetic_facts import Observed
from kfuzz.core.budget import Burst, Depth, Screened, SizeBudget
from kfuzz.core.errors import BackendError, BuildError, HarnessError, KfuzzError
from kfuzz.core.finding import Fingerprint, host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Verdict
from kfuzz.engine.workers import children as asking
from kfuzz.engine.workers import children as faults
from kfuzz.engine.workers.children import Anew, Asking, Place, is_fault
from kfuzz.engine.workers.zygotes import OPEN_SECONDS, Backend, budget_for, home_of
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.processes import ChildDied, ChildRaised, ChildTimeout, ZygoteError
from kfuzz.targets.load import LoadedKernel

P = ParamSpec("P")
T = TypeVar("T")
# The classes under which a result that misses is charged at the latest.
_OF_VALUES: Final = ("K-VAL-01", "K-GRD-01")


def _survived(
    method: Callable[Concatenate["Runner", P], T],
) -> Callable[Concatenate["Runner", P], T]:
    """Ask once more where what children are forked from died, with one of its own.

    It is shared with the other kernels, and one of these may have ended it.
    """

    @wraps(method)
    def again(self: "Runner", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except ZygoteError:
            with self.children.lone():
                return method(self, *args, **kwargs)

    return again


class Runner(Asking):
    """Runs cases of one kernel in children, as a campaign asks for them."""

    def fingerprint(self) -> Fingerprint:
        """Return the environment of the kernel's calls, known after the first case."""
        return host_fingerprint(
            device=self.children.device_name,
            driver=BACKENDS[self.place.backend].versions(self.place.device),
            flags=self.children.flags,
        )

    @property
    def tells_apart(self) -> bool:
        """Whether to find out by further calls which class a violation breaks."""
        return True

    @property
    def records_count(self) -> bool:
        """Whether one recorded miss is a violation that nothing has to repeat.

        A kernel that promises equal bits cannot be right about an input at one time
        and wrong by more than rounding at another.
        """
        return self.loaded.kernel.declaration.determinism == "bitwise"

    def seen_often(self, failure: Failure) -> bool:
        """Whether a failure that ends a call was seen more than once, by itself."""
        return False

    def open(self) -> None:
        """Have the child that stays get ready, if none stands ready.

        Raises:
            BackendError: if the device does no work.
            BindingError: if the kernel cannot be opened.
            HarnessError: if the child does not get ready.
        """
        self.children.standing()

    @_survived
    def judge(
        self, case: Case, depth: Depth, *, patience: float = math.inf
    ) -> CaseReport:
        """Run and judge one case.

        Args:
            case: the case.
            depth: how far it is judged.
            patience: seconds that may be spent on compiling for it.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
            CompilesLong: if compiling for it takes longer.
            HarnessError: if kfuzz's own side fails.
        """
        message = _question(case, depth)
        limit = self._hang_limit() if case.large else self._suspect_limit()
        report = self._judge(message, limit, patience)
        if self.fault and is_fault(report) and _is_beside(case, self.fault):
            return faults.charged(report, self.fault)
        return report

    @_survived
    def diagnose(self, case: Case, seconds: float, *, fresh: bool) -> CaseReport | None:
        """Judge a case that fails with the probes that tell the classes apart.

        These call the kernel on other shapes and data. What such a call does, hang or
        crash, says nothing of the case: then its class is left open.

        Args:
            case: the case.
            seconds: how long that may take, in all.
            fresh: whether in a child that was asked nothing before.

        Returns:
            The report; None where it did not come, or not in time.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
            HarnessError: if kfuzz's own side fails.
        """
        message, until = _question(case, Depth.FULL), time.monotonic() + seconds
        if fresh and self.children.apart:
            [peer] = self.children.fresh(1)
            peer.send(message)
        else:
            fresh, peer = False, self._send(message)
        try:
            limit = max(self._hang_limit(), asking.FIRST_SECONDS)
            reply = self._reply(peer, limit, until=until)
            report: CaseReport = reply["report"]
            return report
        except (ChildTimeout, ChildDied):
            if not fresh:
                self.children.replace(peer)
            return None
        except ChildRaised:
            return None
        finally:
            if fresh:
                self.children.discard([peer])

    @_survived
    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        """Run and judge one case in fresh children, at the full time limit.

        The children run side by side where there are processes, on a device in turn
        but for hangs. Where a hang is in question each is warmed up first, with a case
        that has returned.

        Args:
            case: the case.
            depths: how far each child judges it, one per child.
        """
        messages = [_question(case, depth) for depth in depths]
        if not self.children.apart:
            return [self._judge(m, self._hang_limit()) for m in messages]
        reports = self._side_by_side(messages, warm=self.hanging)
        if not self._holds_anew(messages[0], reports):
            reports = self._side_by_side(messages, warm=self.hanging, anew=True)
            if all(report.failure is None for report in reports):
                self.children.distrust("what it does in a fork differs")
        if not any(map(is_fault, reports)):
            return self._settled(reports)
        found = self.locate(case)
        if found is None:
            return reports
        alignment = self.loaded.kernel.declaration.alignment
        failure = faults.measure(*found, self._ask, alignment)
        return [faults.charged(r, failure) if is_fault(r) else r for r in reports]

    def _holds_anew(
        self, message: dict[str, Any], reports: Sequence[CaseReport]
    ) -> bool:
        """Whether what fails in forks fails where the kernel's file was imported too.

        Nothing is charged for what only a fork of the process that imported it shows.
        A child that imported it and stays is asked, then one that was asked nothing.
        What fails at times is charged only where chance is what is to be shown.
        """
        failure = next((r.failure for r in reports if r.failure is not None), None)
        if failure is None or not self.children.forked or self.hanging:
            return True
        by_chance = failure.kind in CLASSES[failure.contract].by_chance
        if not by_chance and any(r.failure is None for r in reports):
            return True
        signature = failure.signature(self.loaded.name)
        limit = max(self._hang_limit(), asking.FIRST_SECONDS)
        for fresh in (False, True):
            peer = self.children.importing(fresh=fresh)
            if self._asked(peer, message, limit).shows(signature):
                return True
        return False

    def _settled(self, reports: Sequence[CaseReport]) -> list[CaseReport]:
        """Return the reports of one case with what they suspect settled, asked once."""
        found = next((r.suspicion for r in reports if r.suspicion), None)
        if found is None or not self.conforms_alone(found.case):
            return list(reports)
        # Equal calls on equal data: whoever suspects anything suspects the same.
        return [
            r.convicted() if r.suspicion and r.suspicion.case == found.case else r
            for r in reports
        ]

    def conforms_alone(self, case: Case) -> bool | None:
        """Whether a case conforms in a fresh child; None where that cannot be said."""
        if not self.children.apart:
            return None
        report = self._alone(case)
        if report.failure is not None:
            return False
        values = (report.verdicts.get(id) for id in _OF_VALUES)
        return True if Verdict.CONFORMS in values else None

    def prepare(self, children: int) -> None:
        """Have fresh children get ready on a device, for questions soon to come.

        Creating contexts there takes seconds, and meanwhile another child can judge.
        """
        if self.children.apart and self.place.has.asynchronous:
            self.children.prepare(children)
            self.children.prepare(1, anew=True)

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return the fence to blame for a case that died of a fault, if one is.

        Returns:
            The case with all values explicit and one argument at a fence, and the
            violation.
        """
        if not self.children.fences or self.children.unfenced or case.large:
            return None
        given = self.loaded.kernel.declaration.out
        pinned = case if case.pinned and not given else self.pin(case)
        return faults.locate(pinned, self._ask, allocations=self.place.has.asynchronous)

    def _ask(self, case: Case) -> faults.Answer:
        """Return what a fresh child shows of a case."""
        return faults.answer_of(case, self._alone(case))

    def _alone(self, case: Case) -> CaseReport:
        """Return what a fresh child's first call gives."""
        [report] = self._side_by_side([_question(case, Depth.BASE)], warm=False)
        return report

    def admits(self, case: Case) -> bool:
        """Whether a case lies in the kernel's domain."""
        kernel = self.loaded.kernel
        return kernel.operator.admits(case, kernel.declaration)

    @_survived
    def pin(self, case: Case) -> Case:
        """Return the case with all values explicit.

        Raises:
            HarnessError: if the values cannot be made.
        """
        peer = self._send({"do": "pin", "case": case})
        try:
            reply = peer.wait(OPEN_SECONDS)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self.children.replace(peer)
            raise HarnessError(f"the values cannot be made: {fault}") from fault
        made: Case = reply["case"]
        return made

    @_survived
    def observe(self, case: Case, times: int = 1) -> Observed:
        """Return what equal calls on a case give, unjudged.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
        """
        peer = self._send({"do": "observe", "case": case, "times": times})
        try:
            reply = self._reply(peer, max(asking.FIRST_SECONDS, self._hang_limit()))
        except (ChildTimeout, ChildDied) as fault:
            self.children.replace(peer)
            return Observed(calls=1, problem=f"the call ends its process: {fault}")
        except ChildRaised as raised:
            self.children.replace(peer)
            return Observed(problem=f"{raised.type}: {raised.message}")
        observed: Observed = reply["observed"]
        return observed

    def submit(self, batch: Burst) -> None:
        """Ask for a batch to be prefiltered; `prefiltered` is to be called next.

        If something else is asked for first, the batch and its child are given up.

        Raises:
            BindingError: if the kernel cannot be opened any more.
        """
        self._prefiltering = self._send({"do": "screen", "burst": batch})

    def prefiltered(self, *, patience: float = math.inf) -> Screened:
        """Return what prefiltering the batch submitted last gives.

        Of one that ends its process, or takes too long, only that is known.

        Args:
            patience: seconds that may be spent on compiling for it.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
            CompilesLong: if compiling for it takes longer.
            HarnessError: if kfuzz's own side fails, or no batch is under way.
        """
        peer, self._prefiltering = self._prefiltering, None
        if peer is None:
            raise HarnessError("no batch is being prefiltered")
        try:
            reply = self._reply_to_batch(peer, patience)
        except ChildTimeout:
            ours = not peer.is_in_kernel()
            self.children.replace(peer)
            if ours:
                what = f"kfuzz took more than {asking.FIRST_SECONDS:.0f} s"
                return Screened(error=what)
            return Screened(lost="it takes too long", spent=True)
        except (ChildDied, ZygoteError) as died:
            self.children.replace(peer)
            return Screened(lost=str(died), spent=True)
        except BuildError as error:
            return Screened(error=f"BuildError: {error.what}")
        except ChildRaised as raised:
            return Screened(error=f"{raised.type}: {raised.message}")
        made: Screened = reply["screened"]
        if made.spent:
            self.children.replace(peer)
        return made

    def close(self) -> None:
        """End the children that are kept."""
        self.children.close()


def _question(case: Case, depth: Depth) -> dict[str, Any]:
    """Return the request to judge a case."""
    return {"do": "judge", "case": case, "depth": depth}


def _is_beside(case: Case, fault: Failure) -> bool:
    """Whether a case has at a fence what an established fault is about, alone."""
    edge = case.edge
    if edge is None or edge.argument != fault.output:
        return False
    return bool(edge.argument) or edge.allocation is not None


# What runs the cases of a kernel of a run: on which device, and in which children.


def runner_of(
    loaded: LoadedKernel,
    backend: Backend,
    *,
    root: Path,
    expired: Callable[[], bool],
    classes: Collection[str] = frozenset(CLASSES),
    budget: SizeBudget | None = None,
    device: str = "",
    probes: float = 1 / SECOND_CALL_SHARE,
    quiet: Callable[[], bool] | None = None,
) -> Runner:
    """Return what runs the cases of a kernel, the kernel's own if it brings one.

    Args:
        loaded: the kernel.
        backend: where its children are forked.
        root: the project.
        expired: whether the run is over.
        classes: ids of the contract classes in force.
        budget: limits on sizes; those of the kernel on the backend by default.
        device: one of the backend's; its first by default.
        probes: share of the cases that get the sampled probes.
        quiet: tells whether what the children print is dropped.
    """
    device = device or backend.devices[0]
    place = Place(
        device=backend.called(device),
        backend=backend.name,
        budget=budget or budget_for(loaded.kernel, backend.name),
        classes=tuple(sorted(classes)),
        root=root,
        probes=probes,
        seen_as=device,
        beside=backend.beside(device),
    )
    if (own := getattr(loaded, "runner", None)) is not None:
        made: Runner = own(place, expired=expired)
        return made
    fork = anew = None
    if backend.isolated:
        home = home_of(loaded.source, root)
        fork = partial(backend.fork, quiet, device=device, home=home, expired=expired)
        anew = Anew(
            partial(backend.fork, quiet, device=device),
            partial(backend.shares, home, device),
            partial(backend.distrust, home),
            partial(backend.own_zygote, device),
        )
    return Runner(loaded, place, fork, expired=expired, anew=anew)


# Trying the GPUs of a run, so that one that is broken judges nothing.

SERVE: Final = "kfuzz.execution.device.backends:serve"
PATIENCE_SECONDS: Final = 60.0
"""Importing torch and creating a context, on a machine that is busy."""


def keep_sound(backend: Backend) -> list[str]:
    """Leave out the devices of a backend that do not work; one alone is not tried.

    What is wrong with one alone shows in each of its children, which say so. A load
    past the end that passes speaks against a device only where it faults on another:
    else it is the driver's way, and what goes unseen is told of the whole run.

    Returns:
        What was left out, and why.

    Raises:
        BackendError: if nothing is left.
    """
    if len(backend.devices) < 2 or not backend.isolated:
        return []
    with ThreadPoolExecutor(len(backend.devices)) as pool:
        made = pool.map(partial(tried, backend), backend.devices)
        told = dict(zip(backend.devices, made, strict=True))
    faults = any(not ailment and not passed for _, ailment, passed in told.values())
    left_out = {
        device: f"{device} ({uuid}) is left out: "
        + (ailment or "a planted load past the end passes, on others it faults")
        for device, (uuid, ailment, passed) in told.items()
        if ailment or (passed and faults)
    }
    sound = tuple(each for each in backend.devices if each not in left_out)
    if not sound:
        raise BackendError(
            f"no device works: {'; '.join(left_out.values())}",
            fix="kfuzz doctor prints what each can do",
        )
    backend.use(sound)
    return list(left_out.values())


def tried(backend: Backend, device: str) -> tuple[str, str, bool]:
    """Return how a device of a backend fares.

    Returns:
        Its UUID, "" where it could not say; why it cannot be used, "" where it can;
        whether a load past the end of an argument passed that should fault.
    """
    try:
        with backend.fork(lambda: True, device=device, serve=SERVE) as child:
            asked = {"device": backend.called(device)}
            told = child.request(asked, PATIENCE_SECONDS)
    except KfuzzError as error:
        return "", str(error).partition("\n")[0], False
    return told["uuid"], told["ailment"], told["passed"]
