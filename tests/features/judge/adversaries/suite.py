"""The candidates of a seed, and what becomes of them."""

import argparse
import multiprocessing
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Budget
from kfuzz.core.errors import KfuzzError
from kfuzz.core.verdict import Verdict
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge import candidate as contained
from kfuzz.features.judge.procedure import JudgeConfig, Judging
from kfuzz.features.judge.sandbox.contain import MIB, Limits
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from tests.features.judge.adversaries.bodies import (
    BODIES,
    ENDLESS,
    ON_GPU,
    Body,
)
from tests.features.judge.adversaries.honest import honest_ones
from tests.features.judge.adversaries.problems import PROBLEMS, Problem
from tests.features.judge.adversaries.reported import REPORTED
from tests.features.judge.adversaries.triggers import TRIGGERS, Trigger

SECONDS: Final = 50.0
"""Of one judgement, as `kfuzz judge` takes them: a liar has to be found in a minute."""

LIMITS: Final = Limits(
    memory=1024 * MIB, wall_seconds=8.0, first_seconds=20.0, scratch_bytes=64 * MIB,
    processes=16,
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    Attributes:
        family: what it does.
        name: how, with what was drawn.
        reference: the text of the reference.
        source: its own text.
        wrong: whether it has to violate; else it must not.
        random: whether it declares randomness of its own.
    """

    family: str
    name: str
    reference: str
    source: str
    wrong: bool
    random: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one."""

    candidate: Candidate
    verdict: Verdict
    reason: str
    seconds: float

    @property
    def expected(self) -> bool:
        """Whether it came out as it has to."""
        return (self.verdict is Verdict.VIOLATES) == self.candidate.wrong


def candidates(seed: int, variants: int, device: str = "cpu") -> Iterator[Candidate]:
    """Yield liars, each followed by the honest one beside it, then other honest ones.

    Args:
        seed: decides numbers, places and problems.
        variants: of each template.
        device: where they run; streams are a GPU's.
    """
    bodies = (*BODIES, *REPORTED, *(() if device == "cpu" else ON_GPU))
    for number in range(variants):
        for trigger in TRIGGERS:
            draw = random.Random(f"{seed} {number} {trigger.name}")
            yield from _of_trigger(trigger, draw.choice(PROBLEMS), draw, number)
        for body in bodies:
            draw = random.Random(f"{seed} {number} {body.name}")
            fitting = [p for p in PROBLEMS if body.only in ("", p.name)]
            yield from _of_body(body, draw.choice(fitting), draw, number)
    yield from _endless()
    for honest in honest_ones():
        yield Candidate(
            "honest", f"{honest.problem.name}: {honest.name}",
            honest.problem.reference, honest.source, wrong=False, random=honest.random,
        )  # fmt: skip


def _of_trigger(
    trigger: Trigger, problem: Problem, draw: random.Random, number: int
) -> Iterator[Candidate]:
    when = trigger.when(draw)
    kind, size = draw.randrange(5), draw.choice((0.02, 0.1, 0.5, 2.0))
    args = problem.arguments
    lie = f"off(self.right({args}), {kind}, {size})"
    for wrong in (True, False):
        way = lie if wrong else f"self.alike({args})"
        body = (
            f"{trigger.before}\nif {when}:\n    return {way}\nreturn self.right({args})"
        )
        methods = "wait" if "def wait(" in trigger.top else ""
        setup = f"self.{methods} = {methods}.__get__(self)\n" if methods else ""
        source = problem.candidate(body, setup=setup + trigger.setup, top=trigger.top)
        yield Candidate(
            trigger.family, f"{trigger.name} ({problem.name}, {number})",
            problem.reference, source, wrong,
        )  # fmt: skip


def _of_body(
    body: Body, problem: Problem, draw: random.Random, number: int
) -> Iterator[Candidate]:
    for wrong in (True, False):
        text = (body.cheat if wrong else body.honest)(draw)
        text = text.replace("INIT", problem.init_values)
        text = text.replace("(ARGS,)", f"({problem.arguments},)")
        text = text.replace("ARGS", problem.arguments)
        source = problem.candidate(text, setup=body.setup, top=body.top)
        yield Candidate(
            body.family, f"{body.name} ({problem.name}, {number})",
            problem.reference, source, wrong,
        )  # fmt: skip


def _endless() -> Iterator[Candidate]:
    relu = next(p for p in PROBLEMS if p.name == "relu")
    for name, (endless, brief) in ENDLESS.items():
        for wrong_one in (True, False):
            body = f"if self.calls > 3:\n    {endless if wrong_one else brief}\n"
            source = relu.candidate(f"{body}return self.right(x)")
            yield Candidate(
                "resource abuse", name, relu.reference, source, wrong=wrong_one
            )


def opener(stack: ExitStack) -> Callable[[str], Zygote]:
    """Return what gives zygotes by their device; they are closed with the stack."""

    @cache
    def opened(device: str) -> Zygote:
        return stack.enter_context(zygote_for(device, output=lambda piece: None))

    return opened


def outcome_of(
    candidate: Candidate,
    zygotes: Callable[[str], Zygote],
    *,
    most_cases: int | None = None,
    seed: int = 7,
    device: str = "cpu",
) -> Outcome:
    """Judge a candidate as `kfuzz judge` does.

    Args:
        candidate: the candidate.
        zygotes: returns what the children of a device are forked from.
        most_cases: of the judgement.
        seed: likewise.
        device: where it runs.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = folder / "problem.py", folder / "solution.py"
        files[0].write_text(candidate.reference)
        files[1].write_text(candidate.source)
        config = JudgeConfig(
            reference=files[0], candidate=files[1], root=folder,
            corpus=folder / "corpus", seed=seed, device=device, limits=LIMITS,
            budget=Budget(SECONDS, most_cases, 1),
            claims={"determinism": "none" if candidate.random else "run_to_run"},
        )  # fmt: skip
        judging = Judging(
            config, opened=partial(contained.Candidate, zygote=zygotes(device))
        )
        for _ in judging.events(stop=threading.Event()):
            pass
        made = judging.judgement()
    told = [f"{f.state} {f.failure.kind}: {f.failure.message}" for f in made.findings]
    reason = "; ".join([made.reason, *told[:1]])
    return Outcome(candidate, made.verdict, reason, time.monotonic() - began)


# For a judgement to end after its time: a call under way, a finding to be stored.
GRACE_SECONDS: Final = 15.0
# What the children of this process are forked from; they end with it.
_zygotes: Callable[[str], Zygote] = opener(ExitStack())


def judged(
    chosen: Sequence[Candidate], options: argparse.Namespace
) -> Iterator[Outcome]:
    """Yield what becomes of candidates, in the order in which it is known."""
    until = time.monotonic() + options.within
    # Forks of this process would share what torch has begun in it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        under_way = [pool.submit(_judge, c, options, until) for c in chosen]
        for done in as_completed(under_way):
            if (outcome := done.result()) is not None:
                yield outcome


def _judge(
    candidate: Candidate, options: argparse.Namespace, until: float
) -> Outcome | None:
    """Judge one, unless the time is over: then None."""
    began = time.monotonic()
    if began + SECONDS + GRACE_SECONDS > until:
        return None
    cases = None if candidate.wrong else options.honest_cases
    how = {"most_cases": cases, "seed": options.seed, "device": options.device}
    try:
        return outcome_of(candidate, _zygotes, **how)
    except KfuzzError as error:  # as `kfuzz judge` ends: it decides nothing
        return Outcome(candidate, Verdict.ERROR, str(error), time.monotonic() - began)
