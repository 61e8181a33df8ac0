"""The driver of a replay: findings go to workers, results come back in order."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ReplayOutcome, State
from kfuzz.engine.config import ReplayConfig, ReplayResult
from kfuzz.fleet.dispatch import Dispatch, Fleet, Heard, Over
from kfuzz.fleet.plan import Task
from kfuzz.fleet.work import Replay, Work
from kfuzz.store.corpus import Corpus, Problem, Stored


def replayed(
    stored: Sequence[Stored | Problem],
    config: ReplayConfig,
    fleet: Fleet,
    stop: threading.Event,
) -> Iterator[ReplayResult]:
    """Run each finding again on some worker; yield one result per entry, in order.

    Args:
        stored: what to replay; entries that cannot be read become ERROR.
        config: how.
        fleet: the workers; whoever made it closes it.
        stop: set from outside to end soon.

    Raises:
        KfuzzError: as `kfuzz.engine.replay.replayer.replay`.
    """
    corpus = Corpus(config.corpus)
    marks: dict[str, tuple[Finding, ...]] = {}
    made: dict[str, ReplayResult] = {}
    entries = {str(number): entry for number, entry in enumerate(stored)}
    for subject, entry in entries.items():
        if isinstance(entry, Problem):
            made[subject] = _error(None, entry, entry.what)

    def work_of(task: Task) -> Work:
        entry = entries[task.subject]
        assert isinstance(entry, Stored)
        kernel = entry.finding.signature.kernel
        if kernel not in marks:
            marks[kernel] = tuple(corpus.marks(kernel))
        return Replay(entry.finding, marks[kernel], replace(config, keep=False))

    dispatch = Dispatch(fleet, stop)
    dispatch.plan.ask([subject for subject in entries if subject not in made])
    waiting = iter(entries)
    following = next(waiting, None)
    for told in dispatch.run(work_of, lambda task: True):
        match told:
            case Heard(task, ReplayResult() as result):
                entry = entries[task.subject]
                result = replace(result, path=entry.path)
                made[task.subject] = _kept(result, entry, corpus, config)
            case Over(task, why) if task.subject not in made:
                entry = entries[task.subject]
                if not stop.is_set() and isinstance(entry, Stored):
                    why = why or "it came to no result"
                    made[task.subject] = _error(entry.finding, entry, why)
        while following is not None and following in made:
            yield made[following]
            following = next(waiting, None)
    while following is not None and following in made:
        yield made[following]
        following = next(waiting, None)


def _error(finding: Finding | None, entry: Stored | Problem, why: str) -> ReplayResult:
    return ReplayResult(finding, entry.path, ReplayOutcome.ERROR, 0, 0, why)


def _kept(
    result: ReplayResult, entry: Stored | Problem, corpus: Corpus, config: ReplayConfig
) -> ReplayResult:
    """Tell the corpus of a fixed finding that fails again."""
    again = result.finding is not None and result.finding.state is State.REGRESSED
    if not again or isinstance(entry, Problem) or not config.keep:
        return result
    if entry.finding.state is not State.FIXED:
        return result
    from kfuzz.engine.replay.replayer import keep_regressed  # with it comes torch

    return replace(result, message=result.message + keep_regressed(corpus, entry))
