"""What the calls of a burst return: checked one by one, gathered all at once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

import torch
from torch import Tensor

from kfuzz.execution.calls.results import read_results
from kfuzz.execution.memory.batch_rows import MemberRows
from kfuzz.execution.memory.destinations import handed_back
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Expected, Metadata

EARLIER: Final = "returned memory of an earlier call"
"""Why a member failed whose result another call has written over."""

# Results that lie elsewhere than all others are copied one by one up to here.
_FEW: Final = 4


class Lines(Protocol):
    """Memory in which equal things of all members lie a pitch apart."""

    @property
    def low(self) -> int:
        """Address of the first byte."""

    @property
    def high(self) -> int:
        """Address past the last byte."""

    @property
    def pitch(self) -> int:
        """Bytes from one member's memory to the next one's."""

    @property
    def memory(self) -> Tensor:
        """All of it, uint8."""


@dataclass(frozen=True)
class _Given:
    """The arguments of one member."""

    tensors: Mapping[str, Tensor]


class MemberResults:
    """The results of all members.

    Attributes:
        outputs: by name [members, *shape], contiguous.
        failed: per member that returned other than it should have, why.
    """

    def __init__(
        self,
        rows: MemberRows,
        expected: Mapping[str, Expected],
        *,
        device: torch.device,
        inplace: Sequence[str],
        destinations: Sequence[str],
    ) -> None:
        """Expect results.

        Args:
            rows: the arguments as placed.
            expected: metadata of each output, in order.
            device: where results have to lie.
            inplace: arguments whose bytes become the result.
            destinations: outputs whose memory the kernel is given, in order.
        """
        self.failed: dict[int, str] = {}
        self.outputs = {
            name: _room(rows.members, wanted, device)
            for name, wanted in expected.items()
        }
        self._rows = rows
        self._expected = expected
        self._device = device
        self._inplace = inplace
        # Other tensor objects: a kernel may put other memory under the ones it has.
        self._places = {name: rows.views(name) for name in destinations}
        taken = {*destinations, *inplace}
        self._inputs = [name for name in rows.tensors if name not in taken]

    def take(self, number: int, returned: object) -> None:
        """Check what one call returned, and copy it now."""
        found = self._read(number, returned)
        for name, tensor in found.items():
            self.outputs[name][number].copy_(tensor)

    def gather(
        self, returned: Mapping[int, object], lines: Sequence[Lines]
    ) -> list[int]:
        """Check and copy what calls returned whose results are all alive.

        Where a result lies in the memory of another call's, both have failed.

        Args:
            returned: by member, ascending.
            lines: where results may lie a pitch apart, if they are no arguments.

        Returns:
            The members that have not failed of which a result lies in none of the
            lines though the first one's does.
        """
        if not self._expected:
            return []  # values are not judged
        columns = self._columns(returned)
        if self._inplace or self._places:
            lines = (self._rows,)
        within = [_line_of(column, lines) for column in columns]
        lined = [
            set[int]() if line is None else _in_line(column, wanted, line)
            for column, wanted, line in zip(
                columns, self._expected.values(), within, strict=True
            )
        ]
        found = [dict[int, Tensor]() for _ in columns]
        if not all(len(line) == len(returned) for line in lined):
            for number in self._doubtful(returned, columns, lined):
                read = self._read(number, returned[number])
                for line, loose, tensor in zip(
                    lined, found, read.values(), strict=False
                ):
                    line.discard(number)
                    loose[number] = tensor
            for line, loose, column in zip(lined, found, columns, strict=True):
                plain = column.keys() - line - loose.keys() - self.failed.keys()
                loose.update((n, cast(Tensor, column[n])) for n in plain)
            if not (self._inplace or self._places):
                self._note_shared(columns, lined, found)
        for name, line, loose, column, memory in zip(
            self._expected, lined, found, columns, within, strict=True
        ):
            for number in self.failed:
                line.discard(number)
                loose.pop(number, None)
            _copy(self.outputs[name], column, line, loose, memory)
        return _strangers(found, within, lines)

    def _columns(self, returned: Mapping[int, object]) -> list[dict[int, object]]:
        """Return per output what may be the result of each member."""
        if self._places:
            handed = [
                n
                for n, what in returned.items()
                if what is None
                or handed_back(what, [all_[n] for all_ in self._places.values()])
            ]
            return [
                dict[int, object]((n, all_[n]) for n in handed)
                for all_ in self._places.values()
            ]
        if self._inplace:
            own = self._rows.tensors[self._inplace[0]]
            same = [n for n, w in returned.items() if w is None or w is own[n]]
            first: list[dict[int, object]] = [{n: own[n] for n in same}]
            return first + [{} for _ in range(len(self._expected) - 1)]
        if len(self._expected) == 1:
            return [dict(returned)]
        columns: list[dict[int, object]] = [{} for _ in self._expected]
        for number, what in returned.items():
            if isinstance(what, tuple | list) and len(what) == len(columns):
                for column, item in zip(columns, what, strict=True):
                    column[number] = item
        return columns

    def _doubtful(
        self,
        returned: Mapping[int, object],
        columns: Sequence[Mapping[int, object]],
        lined: Sequence[Collection[int]],
    ) -> list[int]:
        """Return the members whose results have to be looked at one by one."""
        low, high = self._rows.low, self._rows.high
        own = bool(self._inplace or self._places)
        sound = set(returned)
        for column, line, out in zip(
            columns, lined, self.outputs.values(), strict=True
        ):
            shape, dtype, device = out.shape[1:], out.dtype, out.device
            sound &= {
                n
                for n, item in column.items()
                if n in line
                or (
                    type(item) is Tensor
                    and item.layout is torch.strided
                    and item.shape == shape
                    and item.dtype is dtype
                    and item.device == device
                    and (own or not low <= item.data_ptr() < high)
                )
            }
        return [n for n in returned if n not in sound]

    def _read(self, number: int, returned: object) -> dict[str, Tensor]:
        """Return one member's results as they lie; none if something is wrong."""
        given = _Given(
            {name: all_[number] for name, all_ in self._rows.tensors.items()}
        )
        outputs, lay, problem = read_results(
            returned,
            given,
            self._expected,
            inplace=self._inplace,
            memory={name: all_[number] for name, all_ in self._places.items()},
            device=self._device,
            copy=False,
        )
        if problem is not None:
            self.failed[number] = _described(problem)
        else:
            shared = self._shared(number, lay)
            if shared:
                self.failed[number] = shared
        if number in self.failed:
            return {}
        # Another device of the same type is none of read_results' matters.
        return {name: t.to(self.outputs[name].device) for name, t in outputs.items()}

    def _shared(self, number: int, lay: Mapping[str, Footprint]) -> str:
        """Return which argument a result lies in that is none of its own."""
        for output, place in lay.items():
            if not (self._rows.low <= place.address < self._rows.high):
                continue
            for name in self._inputs:
                if place.overlaps(Footprint.of(self._rows.tensors[name][number])):
                    return f"aliases: {output} lies in the memory of the input {name}"
        return ""

    def _note_shared(
        self,
        columns: Sequence[Mapping[int, object]],
        lined: Sequence[Collection[int]],
        found: Sequence[Mapping[int, Tensor]],
    ) -> None:
        """Take those for failed that lie where another call's result does."""
        for column, line, loose in zip(columns, lined, found, strict=True):
            at: dict[int, list[int]] = {}
            for number in sorted((*line, *loose)):
                tensor = loose.get(number, column.get(number))
                if isinstance(tensor, Tensor) and tensor.numel():
                    at.setdefault(tensor.data_ptr(), []).append(number)
            for numbers in at.values():
                if len(numbers) > 1:
                    self.failed.update(dict.fromkeys(numbers, EARLIER))


def _line_of(column: Mapping[int, object], lines: Sequence[Lines]) -> Lines | None:
    """Return the memory that the first result lies in, None if it is none of these."""
    lead = next(iter(column.values()), None)
    if not isinstance(lead, Tensor) or lead.layout is not torch.strided:
        return None
    place = lead.data_ptr()
    return next((line for line in lines if line.low <= place < line.high), None)


def _strangers(
    found: Sequence[Mapping[int, Tensor]],
    within: Sequence[Lines | None],
    lines: Sequence[Lines],
) -> list[int]:
    """Return the members of which a result lies in none of the lines.

    Args:
        found: per output, by member, the results that lie elsewhere than all others.
        within: per output, the line of the first member's; None for none of them.
        lines: all of them.
    """
    return [
        number
        for loose, line in zip(found, within, strict=True)
        if line is not None
        for number, tensor in loose.items()
        if tensor.numel()
        and not any(at.low <= tensor.data_ptr() < at.high for at in lines)
    ]


def _in_line(column: Mapping[int, object], wanted: Expected, lines: Lines) -> set[int]:
    """Return the members whose results have the right form and lie a pitch apart."""
    high, pitch = lines.high, lines.pitch
    shape, dtype, strided = wanted.shape, wanted.dtype, torch.strided
    first = next(iter(column), 0)
    lead = column.get(first)
    if not isinstance(lead, Tensor) or lead.layout is not strided or not lead.numel():
        return set()
    stride = lead.stride()
    place = lead.data_ptr()
    origin = place - first * pitch
    last = max(column)
    if Footprint.of(lead).stop + (last - first) * pitch > high:  # not its own memory
        return set()
    return {
        n
        for n, item in column.items()
        if type(item) is Tensor
        and item.dtype is dtype
        and item.layout is strided
        and item.shape == shape
        and item.stride() == stride
        and item.data_ptr() == origin + n * pitch
        and not item.is_neg()  # its memory holds other values than it has
    }


def _copy(
    out: Tensor,
    column: Mapping[int, object],
    lined: Collection[int],
    loose: Mapping[int, Tensor],
    lines: Lines | None,
) -> None:
    """Copy results into one output, all at once where that is possible."""
    if not out.numel():
        return
    if lined and lines is not None and len(loose) <= _FEW:
        first, last = min(lined), max(lined)
        lead = column[first]
        assert isinstance(lead, Tensor)
        size, memory = lead.element_size(), lines.memory.view(-1)
        start = memory.storage_offset() + lead.data_ptr() - memory.data_ptr()
        strides = (lines.pitch // size, *lead.stride())
        every = (last - first + 1, *lead.shape)
        # Rows of members that failed are copied along: they hold anything.
        out[first : last + 1].copy_(
            memory.view(lead.dtype).as_strided(every, strides, start // size)
        )
        for number, tensor in loose.items():
            out[number].copy_(tensor)
        return
    tensors = {**{n: cast(Tensor, column[n]) for n in lined}, **loose}
    if tensors:
        first, last = min(tensors), max(tensors)
        stand_in = tensors[first]
        every_one = [tensors.get(n, stand_in) for n in range(first, last + 1)]
        torch.stack(every_one, out=out[first : last + 1])


def _room(members: int, wanted: Expected, device: torch.device) -> Tensor:
    """Return memory for one output; what may serve as an index begins as 0."""
    make = torch.empty if wanted.dtype.is_floating_point else torch.zeros
    return make((members, *wanted.shape), dtype=wanted.dtype, device=device)


def _described(problem: Metadata) -> str:
    return f"metadata: {problem.message}"
