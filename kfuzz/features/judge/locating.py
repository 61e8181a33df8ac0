"""The line of a candidate that a finding comes from, asked of contained children.

What they import is a text of kfuzz's with the path of the candidate, given as any
candidate's file is; they name the changes and make them, and nothing is judged there. A
candidate may lie about its lines: what they are for is to be read, and they change no
verdict.
"""

import inspect
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError, KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.engine.search.found import drawn
from kfuzz.evaluation import edits
from kfuzz.evaluation.locating import OF_MEMORY, Change, Located, Locating
from kfuzz.features.judge.candidate import OTHER_WEIGHTS, Candidate, configured
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.wire import Entry
from kfuzz.report.text import one_line

if TYPE_CHECKING:
    from kfuzz.features.judge.candidate import Judged
    from kfuzz.features.judge.procedure import JudgedKernel

NO_TRITON: Final = "it runs no Triton kernel whose source is at hand"
LIMITS: Final = Limits(wall_seconds=3.0, first_seconds=20.0)
"""On a child whose candidate is changed."""

# The text that is imported: its file's name, and what stands below the changes.
_NAME: Final = "steered.py"
_BELOW: Final = """

_FOREIGN |= {{__name__, "runtime"}}


class Steered:
    def __new__(cls, *args):
        return steered({file!r}, {build!r}, args)
"""
_BUILD: Final = "Steered"
# What is taken of what a child says.
_MOST_BYTES: Final = 1 << 22
_MOST: Final = 10_000
_LETTERS: Final = 200


class Steered(Candidate):
    """A candidate whose children change it as they are told.

    Attributes:
        chosen: the number of the change with which it is called, 0 for none.
        file: of the candidate.
        told: the changes that its child names: line, column, cost, and in words.
        listing: how a child is asked for them, see `edits.LIST`.
    """

    listing = edits.LIST

    def _entered(self, entry: Entry) -> Entry:
        self.chosen = 0
        self.told: list[tuple[int, int, float, str]] | None = None
        self._minimum: tuple[Tensor, ...] | None = None
        # Before there is a child: what it may read is settled as it begins.
        self._folder = tempfile.TemporaryDirectory(prefix="kfuzz-")
        self.file, path = str(entry.path), Path(self._folder.name, _NAME).resolve()
        below = _BELOW.format(file=self.file, build=entry.build)
        path.write_text(inspect.getsource(edits) + below, encoding="utf-8")
        return replace(entry, path=path, build=_BUILD)

    def __call__(self, *tensors: Tensor) -> Any:
        """Call it with the change that is chosen; see `RemoteKernel`."""
        if self._minimum is None:
            self._minimum = tuple(x.clone() for x in tensors)
        if not self.sandbox.warm:
            self._list(self._minimum)
        return self.kernel(*tensors, self._number(self.chosen))

    def close(self) -> None:
        """End the child."""
        super().close()
        self._folder.cleanup()

    def _list(self, minimum: Sequence[Tensor]) -> None:
        """Have a fresh child name its changes, which are those of the one before."""
        called = self.sandbox.call([*minimum, self._number(self.listing)])
        if called.returned is None:
            return
        made = _read(
            called.returned.value, len(Path(self.file).read_text("utf-8").splitlines())
        )
        if self.told not in (None, made):
            raise HarnessError("its processes name different changes")
        self.told = made

    def _number(self, number: int) -> Tensor:
        return torch.tensor([number], device=self._reference.form.device)


def _read(told: Any, lines: int) -> list[tuple[int, int, float, str]]:
    """Return the changes that a child names; none where it does not keep to the form.

    Args:
        told: what came back.
        lines: of the candidate's file.
    """
    if not isinstance(told, Tensor) or told.dim() != 1 or told.numel() > _MOST_BYTES:
        return []
    try:
        made = json.loads(bytes(told.tolist()))
        changes = [
            (int(line), int(column), float(cost), one_line(str(words))[:_LETTERS])
            for line, column, cost, words in made[:_MOST]
        ]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []
    inside = all(
        0 < c[0] <= lines and c[1] >= 0 and math.isfinite(c[2]) for c in changes
    )
    return sorted(changes, key=lambda c: c[2]) if inside else []


class Numbered(NamedTuple):
    """A change that a child makes when it is told its number."""

    candidate: Steered
    number: int
    file: str
    line: int
    column: int
    cost: float
    words: str

    @contextmanager
    def made(self) -> Iterator[bool]:
        """Have calls in the block run the changed candidate."""
        self.candidate.chosen = self.number
        try:
            yield True
        finally:
            self.candidate.chosen = 0


class _LocatingApart(Locating):
    """Looks for the line of a candidate, which runs in its child."""

    limits = False  # a call that is ended in the middle would leave its answer behind

    def __init__(self, judged: "Judged", finding: Finding, root: Path) -> None:
        super().__init__(judged.evaluator, finding.signature, root)
        assert isinstance(judged.candidate, Steered)
        self._candidate = judged.candidate
        self._path = judged.candidate.file

    def _opened(self, minimum: Case) -> str:
        self._cases.first(minimum)
        told = self._candidate.told
        if told is None:
            return "it was not called in Triton's interpreter in time"
        return "" if told else NO_TRITON

    def _changes(self, *, of_memory: bool) -> Sequence[Change]:
        told = self._candidate.told or []
        return [
            Numbered(self._candidate, number, self._path, *each)
            for number, each in enumerate(told, 1)
        ]


def located(
    finding: Finding, loaded: "JudgedKernel", root: Path, end: float
) -> Located:
    """Return the line that a finding of a candidate comes from, or why there is none.

    Args:
        finding: the finding.
        loaded: the candidate, as `Steered`, in Triton's interpreter.
        root: the project.
        end: `time.monotonic()` at which to stop.
    """
    judged = loaded.judged
    candidate, reference = judged.candidate, judged.reference
    assert isinstance(candidate, Steered)
    if finding.signature.kind in OF_MEMORY:
        candidate.listing = edits.LIST_OF_MEMORY
    config = configured(finding.case)
    reference.use_drawn(drawn=config == OTHER_WEIGHTS)
    candidate.sandbox.until = lambda: end
    with closing(candidate):
        try:
            candidate.begin(finding.case)
            others = [*judged.smaller(finding.first), *drawn(loaded)]
            cases = [replace(reference.adapted(c), config=config) for c in others]
            made = _LocatingApart(judged, finding, root)
            line = made.line([finding.case, *cases], end)
        except KfuzzError as error:
            return Located(why=str(error))
    why = made.why or "no change of one expression lets its case pass"
    return Located(line, why="" if line else why)
