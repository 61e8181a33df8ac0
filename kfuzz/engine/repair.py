"""Patches of a finding: changes of one expression with which its kernel passes.

What lets the smallest case pass (`evaluation/locating.py`) goes through gates, the
cheapest first: that case, stored and drawn neighbours, a search, and what was proved of
the kernel. A search runs the changed text in processes of its own; the user's file
stays as it is.
"""

import difflib
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kfuzz.contracts.gradients.operators import BACKWARD
from kfuzz.core.budget import Budget
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.event import Event, KernelFinished, Proven
from kfuzz.core.features import hook
from kfuzz.core.finding import Finding, Patch
from kfuzz.core.verdict import ATTRIBUTED, FAILS_RUN
from kfuzz.engine.config import ReplayConfig, RunConfig
from kfuzz.engine.replay import locate as load_kernel
from kfuzz.engine.search.found import INTERPRET, LONG_SECONDS, kept, line_of, unfit
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.evaluation.locating import NEIGHBOURS, Draft
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.files import read_source, replace_file
from kfuzz.targets.load import PATCHED, LoadedKernel

MOST: Final = 4
"""Patches that are searched."""

Search = Callable[..., Iterator[Event]]
"""Makes the search that a `RunConfig` describes, until `stop` is set."""


class Repair(NamedTuple):
    """What came of a finding.

    Attributes:
        stored: it, with its line and its patches.
        drafts: the texts of these patches, in the same order.
        rejected: changes that mend the smallest case, with what is against them.
        why: why there is no patch, "" where there is one.
    """

    stored: Stored
    drafts: tuple[Draft, ...] = ()
    rejected: tuple[Patch, ...] = ()
    why: str = ""


def searched(events: Iterator[Event], known: Collection[str]) -> tuple[bool, str]:
    """Return whether a search finds nothing new, and what it came to.

    Args:
        events: of the search.
        known: what distinguishes the findings that may be left.
    """
    cases, left = 0, 0
    for event in events:
        if not isinstance(event, KernelFinished):
            continue
        failing = [f for f in event.findings if f.state in FAILS_RUN]
        if new := [f for f in failing if _bucket(f) not in known]:
            return False, f"a search finds: {new[0].summary}"
        if event.uncompared:
            return False, f"a search compares nothing: {event.uncompared}"
        cases, left = cases + event.cases, left + len(failing)
    found = f"{left} found, all in the corpus" if left else "0 findings"
    return cases > 0, f"{cases:,} cases, {found}" if cases else "a search has no case"


def _bucket(finding: Finding) -> str:
    """Return the bucket without the kernel's name, which another corpus may change."""
    return finding.bucket.partition(" ")[2]


@contextmanager
def _patched(draft: Draft) -> Iterator[Path]:
    """Have processes that begin in the block run the changed text; yield a folder."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-") as folder:
        place = Path(folder, "patched.py")
        place.write_text(draft.after, encoding="utf-8")
        os.environ[PATCHED] = f"{os.path.realpath(draft.path)}\n{place}"
        try:
            yield place.parent
        finally:
            del os.environ[PATCHED]


class Gates:
    """The last two gates of a patch: a search, and what is proved without it."""

    def __init__(
        self,
        loaded: LoadedKernel,
        run: RunConfig,
        search: Search,
        known: Collection[str],
        stop: threading.Event,
    ) -> None:
        """Prove what is proved without a change.

        Args:
            loaded: the kernel.
            run: where and for how long it is searched; its targets are set here.
            search: makes a search.
            known: what distinguishes the findings that may be left.
            stop: set to end it.
        """
        source = loaded.source
        place = f"{source.file}::" if source.file else f"{source.module}:"
        self._target, self._node_id = place + loaded.kernel.name, loaded.node_id
        self._run = replace(run, targets=(self._target,))
        self._search, self._known, self._stop = search, known, stop
        self._before = self._proved()

    def passes(self, draft: Draft) -> tuple[bool, str]:
        """Return whether a patch passes both, and what they came to."""
        with _patched(draft) as folder:
            run = replace(self._run, corpus=folder / "corpus")
            found = self._search(run, stop=self._stop)
            passes, text = searched(found, self._known)
            if not passes:
                return False, text
            now = self._proved()
        lost = [name for name in self._before if name not in now]
        if lost:
            return False, f"not proved any more: {lost[0]}"
        text = f"with this change: {text}, {len(now)} properties proved"
        return True, f"{text}; it is not a review"

    def _proved(self) -> list[str]:
        """Return the properties that are proved now."""
        prove = hook("proof") or (lambda *_: None)
        proof = prove(self._target, self._node_id, self._run.root, self._stop)
        found = () if proof is None else proof.properties
        return [p.name for p in found if p.answer is Proven.ALL_SIZES]


def repaired(
    stored: Stored,
    config: ReplayConfig,
    search: Search,
    *,
    seconds: float,
    stop: threading.Event,
    report: Callable[[str], None],
) -> Repair:
    """Look for patches of a stored finding, which the corpus keeps.

    Args:
        stored: the finding.
        config: where its kernel is.
        search: makes a search.
        seconds: for the search of each patch.
        stop: set to end it.
        report: is told what is being done.

    Raises:
        KfuzzError: if its kernel cannot be loaded, or nothing can be tried.
    """
    finding = replace(stored.finding, line=None, patches=())
    if why := unfit(finding):
        raise UsageError(f"it cannot be repaired: {why}", where=finding.id)
    loaded = load_kernel(finding, config)
    corpus = Corpus(config.corpus)
    own = finding.signature.kernel
    stem = own.removesuffix(BACKWARD)  # a search judges its gradients beside it
    entries = (*corpus.entries(stem), *corpus.entries(stem + BACKWARD))
    stored_of = (e.finding for e in entries if isinstance(e, Stored))
    others = [f for f in stored_of if f.id != finding.id]
    report(f"looking for the line, at most {LONG_SECONDS:.0f} s")
    same = [f.case for f in others if f.signature.kernel == own]
    cases = [case for case in same if case.pinned and not case.large]
    with closing(Backend(INTERPRET, isolate=config.isolate)) as backend:
        found = line_of(
            loaded, finding, backend, root=config.root, seconds=LONG_SECONDS,
            stopped=stop.is_set, others=cases, repair=True,
        )  # fmt: skip
    if found.why and not stop.is_set():
        raise UsageError(f"it cannot be repaired: {found.why}", where=finding.id)
    known = {_bucket(f) for f in others if f.state in ATTRIBUTED}
    run = RunConfig(
        (), config.root, config.corpus, device=config.device or finding.device,
        budget=Budget(max_time=seconds, max_findings=len(known) + 1),
        isolate=config.isolate, prove=False,
    )  # fmt: skip
    passed: list[tuple[Draft, Patch]] = []
    rejected: list[Patch] = []
    if found.drafts:
        report("proving what is proved without a change")
        gates = Gates(loaded, run, search, known, stop)
    for number, draft in enumerate(found.drafts, 1):
        passes, text = False, f"not searched: at most {MOST} changes are"
        if number <= MOST and not stop.is_set():
            report(f"searching with change {number} of {len(found.drafts)}")
            passes, text = gates.passes(draft)
        if stop.is_set():
            break
        patch = Patch(draft.line.file, draft.line.line, _diff(draft), text)
        if passes:
            passed.append((draft, patch))
        else:
            rejected.append(patch)
    why = "no change passes every gate" if rejected else ""
    if not found.drafts:
        why = f"no change of one expression lets it and {NEIGHBOURS} other cases pass"
    if stop.is_set():
        why = "it was interrupted"
    if found.line is not None:
        patches, line = tuple(patch for _, patch in passed), found.line
        places = {(patch.file, patch.line) for patch in patches}
        if patches and (line.file, line.line) not in places:
            line = passed[0][0].line  # a search has refuted what its own change does
        stored = Stored(*kept(corpus, finding, line, patches))
    drafts = tuple(draft for draft, _ in passed)
    return Repair(stored, drafts, tuple(rejected), "" if drafts else why)


def _diff(draft: Draft) -> str:
    file = draft.line.file.lstrip("/")
    before, after = (t.splitlines(keepends=True) for t in (draft.before, draft.after))
    lines = difflib.unified_diff(before, after, f"a/{file}", f"b/{file}")
    end = "\n\\ No newline at end of file\n"
    return "".join(x if x.endswith("\n") else x + end for x in lines)


def apply(draft: Draft, root: Path) -> str:
    """Write a patch to the file that it is of, and return that.

    Raises:
        UsageError: if the file lies outside the project, has changed meanwhile, or
            cannot be written.
    """
    path = Path(os.path.realpath(draft.path))
    where, fix = draft.line.file, "apply the diff yourself"
    if not path.is_relative_to(root.resolve()):
        raise UsageError("it lies outside the project", where=where, fix=fix)
    try:
        text = read_source(path)
    except DecodeError as error:
        raise UsageError(error.what, where=where, fix=fix) from None
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    end = "\r\n" if "\r\n" in text else "\n"
    before, after = (mark + t.replace("\n", end) for t in (draft.before, draft.after))
    if text != before:
        fix = "run `kfuzz repair` again"
        what = "it has changed since the patch was tried"
        raise UsageError(what, where=where, fix=fix)
    try:
        if not os.access(path, os.W_OK):  # it could be replaced all the same
            raise PermissionError("it is not writable")
        mode = path.stat().st_mode
        replace_file(path, after.encode(), prefix=".kfuzz-")
        path.chmod(mode & 0o7777)
    except OSError as error:
        what = f"it cannot be written: {error.strerror or error}"
        raise UsageError(what, where=where, fix=fix) from None
    return where
