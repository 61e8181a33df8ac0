"""Judges candidates side by side, each process with zygotes of its own."""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Final

from kfuzz.core.errors import KfuzzError
from kfuzz.core.verdict import Verdict
from kfuzz.execution.processes import Zygote
from tests.judge.adversaries.suite import Candidate, Outcome, Suite, opener

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
    if time.monotonic() + options.seconds + GRACE_SECONDS > until:
        return None
    cases = options.cases if candidate.wrong else options.honest_cases
    suite = Suite(_zygotes, options.seconds, cases, options.seed, options.device)
    began = time.monotonic()
    try:
        return suite.judge(candidate)
    except KfuzzError as error:  # as `kfuzz judge` ends: it decides nothing
        return Outcome(candidate, Verdict.ERROR, str(error), time.monotonic() - began)
