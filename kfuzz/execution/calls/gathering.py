"""What the calls of a batch return: checked one by one, gathered all at once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

import torch
from torch import Tensor

from kfuzz.core.results import OtherForm, in_place
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.calls.results import Reader
from kfuzz.execution.memory.destinations import handed_back
from kfuzz.execution.memory.placement import Placement
from kfuzz.execution.memory.rows import Rows
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Expected

EARLIER: Final = "returned memory of an earlier call"
"""Why an item failed whose result another call has written over."""

# Results that lie elsewhere than all others are copied one by one up to here.
_FEW: Final = 4


@dataclass(frozen=True)
class _Column:
    """One output of many calls.

    Attributes:
        candidates: by item, what may be the result.
        rows: the memory that the first one lies in; None for none of those known.
        lined: items whose results have the right form and lie a pitch apart there.
        loose: results of the right form that lie elsewhere.
    """

    candidates: Mapping[int, object]
    rows: Rows | None
    lined: set[int] = field(default_factory=set)
    loose: dict[int, Tensor] = field(default_factory=dict)

    def at(self, number: int) -> Tensor:
        """Return the result of an item that is lined or loose."""
        loose = self.loose.get(number)
        return cast(Tensor, self.candidates[number]) if loose is None else loose

    @property
    def results(self) -> dict[int, Tensor]:
        """Those that are lined or loose, by item."""
        return {number: self.at(number) for number in self.lined} | self.loose

    def drop(self, number: int) -> None:
        """Take an item's result out."""
        self.lined.discard(number)
        self.loose.pop(number, None)


class BatchResults:
    """The results of all items.

    Attributes:
        outputs: by name [items, *shape], contiguous.
        failed: per item that returned other than it should have, why.
    """

    def __init__(
        self, asked: Invocation, placement: Placement, device: torch.device
    ) -> None:
        """Expect results."""
        self.failed: dict[int, str] = {}
        self.outputs = {
            name: _buffer(placement.items, wanted, device)
            for name, wanted in asked.expected.items()
        }
        self._asked = asked
        self._placement = placement
        self._reader = Reader(asked, placement, device)
        # Results are arguments: they lie where these do.
        self._in_arguments = bool(asked.inplace or asked.destinations)
        given = {*asked.destinations, *asked.inplace}
        self._inputs = [name for name in placement.every if name not in given]

    def take(self, number: int, returned: object) -> None:
        """Check what one call returned, and copy it now."""
        for name, tensor in self._read(number, returned).items():
            self.outputs[name][number].copy_(tensor)

    def gather(
        self, returned: Mapping[int, object], known: Sequence[Rows]
    ) -> list[int]:
        """Check and copy what calls returned whose results are all alive.

        Where a result lies in the memory of another call's, both have failed.

        Args:
            returned: by item, ascending.
            known: where results may lie a pitch apart, if they are no arguments.

        Returns:
            The items that have not failed of which a result lies in none of the rows
            known though the first one's does.
        """
        if not self.outputs:
            return []  # values are not judged
        if self._asked.inplace and len(self.outputs) > 1:
            for number, what in returned.items():
                self.take(number, what)
            return []
        if self._in_arguments:
            known = (self._placement.rows,)
        columns = [
            self._sorted(candidates, out, known)
            for candidates, out in zip(
                self._candidates(returned), self.outputs.values(), strict=True
            )
        ]
        if not all(len(column.lined) == len(returned) for column in columns):
            good = [column.lined | column.loose.keys() for column in columns]
            for number in sorted(returned.keys() - set.intersection(*good)):
                read = self._read(number, returned[number])
                for name, column in zip(self.outputs, columns, strict=True):
                    column.drop(number)
                    if read:
                        column.loose[number] = read[name]
            if not self._in_arguments:
                self._note_shared(columns)
        for column, out in zip(columns, self.outputs.values(), strict=True):
            for number in self.failed:
                column.drop(number)
            _copy(column, out)
        return _strangers(columns, known)

    def _candidates(self, returned: Mapping[int, object]) -> list[dict[int, object]]:
        """Return per output what may be the result of each item."""
        places = list(self._reader.places.values())
        if places:
            handed = [
                number
                for number, what in returned.items()
                if what is None or handed_back(what, [all_[number] for all_ in places])
            ]
            return [{number: all_[number] for number in handed} for all_ in places]
        count = len(self.outputs)
        if self._asked.inplace:
            own = self._placement.every[self._asked.inplace[0]]
            same = [n for n, w in returned.items() if w is None or w is own[n]]
            first: list[dict[int, object]] = [{n: own[n] for n in same}]
            return [*first, *({} for _ in range(count - 1))][:count]
        alike: dict[int, dict[str, object]] = {}
        for number, what in returned.items():
            with suppress(OtherForm):
                alike[number] = in_place(what, self.outputs)
        return [{n: each[name] for n, each in alike.items()} for name in self.outputs]

    def _sorted(
        self, candidates: Mapping[int, object], out: Tensor, known: Sequence[Rows]
    ) -> _Column:
        """Return a column with what is of the right form beyond doubt."""
        lead = next(iter(candidates.values()), None)
        rows: Rows | None = None
        origin, pitch = 0, 0
        stride: tuple[int, ...] = ()
        if isinstance(lead, Tensor) and lead.layout is torch.strided:
            place = lead.data_ptr()
            rows = next((r for r in known if r.low <= place < r.high), None)
            if rows is not None and lead.numel():
                first, pitch, stride = next(iter(candidates)), rows.pitch, lead.stride()
                origin = place - first * pitch
                last = Footprint.of(lead).stop + (max(candidates) - first) * pitch
                if last > rows.high:  # not its own memory
                    pitch = 0
        column = _Column(candidates, rows)
        shape, dtype, device = out.shape[1:], out.dtype, out.device
        given = self._placement.rows
        low, high = given.low, given.high
        for number, item in candidates.items():
            if not (
                type(item) is Tensor
                and item.layout is torch.strided
                and item.dtype is dtype
                and item.shape == shape
                and item.device == device
            ):
                continue
            place = item.data_ptr()
            if (
                pitch
                and place == origin + number * pitch
                and item.stride() == stride
                and not item.is_neg()  # its memory holds other values than it has
            ):
                column.lined.add(number)
            elif self._in_arguments or not low <= place < high:
                column.loose[number] = item
        return column

    def _read(self, number: int, returned: object) -> dict[str, Tensor]:
        """Return one item's results as they lie; none if something is wrong."""
        read = self._reader.read(returned, number, copy=False)
        if read.problem is not None:
            self.failed[number] = f"metadata: {read.problem.message}"
        elif shared := self._shared(number, read.results):
            self.failed[number] = shared
        if number in self.failed:
            return {}
        # Another device of the same type is none of the reader's matters.
        outputs = read.outputs.items()
        return {name: t.to(self.outputs[name].device) for name, t in outputs}

    def _shared(self, number: int, lay: Mapping[str, Footprint]) -> str:
        """Return which argument a result lies in that is none of its own."""
        rows = self._placement.rows
        for output, spot in lay.items():
            if not (rows.low <= spot.address < rows.high):
                continue
            for name in self._inputs:
                if spot.overlaps(Footprint.of(self._placement.every[name][number])):
                    return f"aliases: {output} shares memory with the input {name}"
        return ""

    def _note_shared(self, columns: Sequence[_Column]) -> None:
        """Take those for failed that lie where another call's result does."""
        for column in columns:
            held = column.results.items()
            places = {n: tensor.data_ptr() for n, tensor in held if tensor.numel()}
            if len(set(places.values())) == len(places):
                continue
            at: dict[int, list[int]] = {}
            for number, spot in places.items():
                at.setdefault(spot, []).append(number)
            for numbers in at.values():
                if len(numbers) > 1:
                    self.failed.update(dict.fromkeys(numbers, EARLIER))


def _strangers(columns: Sequence[_Column], known: Sequence[Rows]) -> list[int]:
    """Return the items of which a result lies nowhere known, unlike the first one's."""
    return [
        number
        for column in columns
        if column.rows is not None
        for number, tensor in column.loose.items()
        if tensor.numel()
        and not any(rows.low <= tensor.data_ptr() < rows.high for rows in known)
    ]


def _copy(column: _Column, out: Tensor) -> None:
    """Copy results into one output, all at once where that is possible."""
    if not out.numel():
        return
    if column.lined and column.rows is not None and len(column.loose) <= _FEW:
        first, last = min(column.lined), max(column.lined)
        lead, rows = column.at(first), column.rows
        typed, size = rows.memory.view(lead.dtype), lead.element_size()
        start = typed.storage_offset() + (lead.data_ptr() - rows.low) // size
        shape = (last - first + 1, *lead.shape)
        strides = (rows.pitch // size, *lead.stride())
        # Rows of items that failed are copied along: they hold anything.
        out[first : last + 1].copy_(typed.as_strided(shape, strides, start))
        for number, tensor in column.loose.items():
            out[number].copy_(tensor)
        return
    tensors = column.results
    if tensors:
        first, last = min(tensors), max(tensors)
        stand_in = tensors[first]
        every_one = [tensors.get(n, stand_in) for n in range(first, last + 1)]
        torch.stack(every_one, out=out[first : last + 1])


def _buffer(items: int, wanted: Expected, device: torch.device) -> Tensor:
    """Return memory for one output; what may serve as an index begins as 0."""
    make = torch.empty if wanted.dtype.is_floating_point else torch.zeros
    return make((items, *wanted.shape), dtype=wanted.dtype, device=device)
