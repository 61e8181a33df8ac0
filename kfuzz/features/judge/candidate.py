"""What came back of a candidate's calls: kept beside a finding that is witnessed.

Inputs and results as bytes show the miss to whoever looks, also where it does not show
again.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from kfuzz.core.errors import End, Entry, HarnessError, KfuzzError, Mode
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.processes import Zygote
from kfuzz.features.judge.kernelbench.operator import Reference
from kfuzz.features.judge.kernelbench.problem import SEED
from kfuzz.features.judge.sandbox import Opened, RemoteKernel, Sandbox
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.wire import raw
from kfuzz.store.files import StoredTensor, dump

FILE: Final = "recorded.safetensors"
"""Beside `finding.json`: the results of the call that was wrong, by output."""

# Calls of one case whose results are kept, and elements of those that are.
_CALLS: Final = 32
_ELEMENTS: Final = 1 << 20


class Recording:
    """The results of the last calls on one case."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Tensor, ...]] = deque(maxlen=_CALLS)

    def begin(self) -> None:
        """A case begins."""
        self._calls.clear()

    def take(self, returned: Any) -> None:
        """Keep a copy of what a call returned, if these are tensors of some size."""
        parts = (returned,) if isinstance(returned, Tensor) else returned
        if not isinstance(parts, tuple | list):
            return
        tensors = [x for x in parts if type(x) is Tensor and not x.is_meta]
        if len(tensors) < len(parts) or sum(x.numel() for x in tensors) > _ELEMENTS:
            return
        self._calls.append(tuple(x.detach().clone() for x in tensors))

    def showing(self, failure: Failure, outputs: Sequence[str]) -> bytes | None:
        """Return the file of the results that a failure is about; None if not kept."""
        place = failure.place or 0
        for tensors in reversed(self._calls):
            if len(tensors) == len(outputs) and _holds(tensors[place], failure):
                named = zip(outputs, tensors, strict=True)
                return dump({name: _stored(x) for name, x in named})
        return None


def _holds(result: Tensor, failure: Failure) -> bool:
    index, got = failure.index, failure.got
    if index is None or got is None or len(index) != result.dim():
        return False
    if any(i >= n for i, n in zip(index, result.shape, strict=True)):
        return False
    value = float(result[index])
    return value == got or (math.isnan(value) and math.isnan(got))


def _stored(result: Tensor) -> StoredTensor:
    data = raw(result).cpu().numpy().tobytes()
    name = str(result.dtype).removeprefix("torch.")
    return StoredTensor(name, tuple(result.shape), data)


# A candidate in a child of its own: built there, given the reference's weights.

BUILT: Final = "ModelNew"
"""What a candidate's file defines."""

EVALUATION: Final = 1
"""The configuration of a case in which the candidate's module is in evaluation mode."""

OTHER_WEIGHTS: Final = 2
"""The configuration of a case in which weights that are constant as built are drawn."""


def configured(case: Case) -> int:
    """Return in which configuration a case is judged; 0 for as it was built."""
    return case.config if case.config in (EVALUATION, OTHER_WEIGHTS) else 0


class Candidate:
    """A candidate in a contained child of its own, where it is built at once.

    Args:
        path: its file.
        reference: whose arguments and weights it is given.
        backend: name of the backend.
        limits: what the child may take.
        zygote: what children are forked from; one of its own by default.
        hidden: files and folders that it must not read, besides the reference's.
        sandbox: an empty one with these limits, in place of one made here; closed with
            the candidate.

    Raises:
        HarnessError: if the machine lacks what it takes to build it.
        KfuzzError: if it cannot be built, or its weights are not the reference's.

    Attributes:
        weights: how it came to the reference's weights, in words.
        same_names: whether its weights have the reference's names and sizes, all of
            them, and there are no others.
        stalls: calls so far that did not return in time, and did in a fresh child.
        recording: what its calls on the present case returned.
        sandbox: where it is built.
        kernel: it in that, which is called.
    """

    def __init__(
        self,
        path: Path,
        reference: Reference,
        *,
        backend: str,
        limits: Limits,
        zygote: Zygote | None = None,
        hidden: Sequence[Path] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        form = reference.form
        native = BACKENDS[backend].has.native
        device = str(form.device) if native else backend
        self._reference = reference
        self._weights = form.state()
        self._entry = Entry(
            path, BUILT, args=form.init, seed=SEED, weights=self._weights,
            fixed=dict(form.fixed),
        )  # fmt: skip
        compiled = (form.path.parent / "__pycache__").glob(f"{form.path.stem}.*.pyc")
        self.sandbox = sandbox or Sandbox(
            None, device=device, limits=limits, zygote=zygote,
            hidden=[form.path, *compiled, *hidden],
        )  # fmt: skip
        self.sandbox.enter(self._entry)
        self.kernel = RemoteKernel(self.sandbox, nesting=form.nesting)
        self.recording = Recording()
        self._config = 0
        self._late = 0
        self.stalls = 0
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def late(self) -> bool:
        """Whether a result changed after its call had returned, since `begin`."""
        return self.kernel.late > self._late

    def _open(self) -> None:
        """Build it, and compare its weights with the reference's; see the class."""
        opened = self.sandbox.start()
        if opened.ended is not None:
            ended = opened.ended
            what = f"it cannot be built: it {ended.text}"
            of_memory = ended.end is End.MEMORY and ended.detail == "machine"
            if of_memory or ended.end is End.UNAVAILABLE:
                raise HarnessError(what)
            where = str(self._entry.path)
            raise KfuzzError(
                what,
                where=where,
                fix="".join(ended.output.strip().splitlines()[-1:])[:300],
            )
        if opened.raised is not None:
            raised = opened.raised
            raise KfuzzError(
                f"it cannot be built: {raised.type}: {raised.message}",
                where=str(self._entry.path),
            )
        self.weights = self._matched(opened)
        self.same_names = set(opened.state) == set(self._weights) == set(opened.loaded)

    def __call__(self, *tensors: Tensor) -> Any:
        """Call it in its child; see `RemoteKernel`."""
        expected = self.sandbox.used + (not self.sandbox.alive)
        returned = self.kernel(*tensors)
        self.recording.take(returned)
        self.stalls += self.sandbox.used > expected
        return returned

    def begin(self, case: Case) -> None:
        """Forget what the last case showed, and be as the case wants it.

        Other weights are the reference's, which has to use them by now.
        """
        self._late = self.kernel.late
        self.kernel.circumstances.begin()
        self.recording.begin()
        config = configured(case)
        if config == self._config:
            return
        self._config, entry = config, self._entry
        if config == EVALUATION:
            entry = replace(entry, mode=Mode.EVAL)
        elif config == OTHER_WEIGHTS:
            state = self._reference.form.state()
            entry = replace(entry, weights=state, constants_drawn=True)
        self.sandbox.enter(entry)

    def close(self) -> None:
        """End the child."""
        self.sandbox.close()

    def _matched(self, opened: Opened) -> str:
        """Say how it came to the reference's weights.

        Raises:
            KfuzzError: if some are nowhere in it.
        """
        wanted, loaded = self._weights, set(opened.loaded)
        if not wanted:
            return "the reference has none"
        text = f"{len(loaded)} of {len(wanted)} loaded by name and shape"
        if len(loaded) == len(wanted):
            return text
        if lacking := [n for n in wanted if n not in {*loaded, *opened.alike}]:
            raise KfuzzError(
                f"its weights are not the reference's: {', '.join(lacking)} can "
                "neither be loaded by name and shape nor be found among those that "
                "it makes under the same seed",
                where=str(self._entry.path),
                fix="name parameters and buffers as the reference does",
            )
        alike = len(wanted) - len(loaded)
        return f"{text}, {alike} alike, made under the same seed"
