"""The formulas of `kfuzz.core.value_families` as operations on tensors, on any device.

`fused_fills` does the same by one compiled kernel; tests hold both to the same bits.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
    MIXED_KINDS,
    Code,
    Column,
    Row,
    edges,
    infinity_bits,
    is_hostile,
)
from kfuzz.execution.values.generator import INTEGERS, Grid, narrowed, signs, uploaded
from kfuzz.numerics.formats import power_of_two

# Of so many seeds of a hostile family one replaces every element.
_ALL_SHARE: Final = 4


def fill_rows(rows: Tensor, grid: Grid, family: str, *, bound: int = 0) -> None:
    """Write the values of a family.

    Args:
        rows: of the shape of the grid, contiguous; it is overwritten.
        grid: of the items.
        family: any but those that copy, of the kind that the dtype and the bound say.
        bound: of indices, what they stay below.
    """
    make: Any
    if bound:
        wanted = "index_uniform" if is_hostile(family) else family
        make = INDEX_FAMILIES[wanted].make
        rows.copy_(make(grid, bound))
        if wanted != family:
            _spoil(rows, grid, family, bound)
    elif rows.dtype is torch.bool:
        make = BOOL_FAMILIES[family].make
        rows.copy_(make(grid))
    elif not rows.is_floating_point():
        make = INTEGER_FAMILIES[family].make
        rows.copy_(make(grid, torch.iinfo(rows.dtype).min))
    else:
        make = FAMILIES[family].make
        _Formula(make(grid), grid).write(rows)


def _spoil(rows: Tensor, grid: Grid, family: str, bound: int) -> None:
    """Overwrite one index of each item, or all, by the value of a hostile family."""
    make: Any = INDEX_FAMILIES[family].make
    limits = torch.iinfo(rows.dtype)
    value = make(bound, limits.min, limits.max)
    row = grid.entry((0, grid.rows - 1, grid.rows // 2), 2)
    place, every = grid.entry(edges(grid.n), 1), grid.pick(3, _ALL_SHARE) == 0
    row, place, every = (np.broadcast_to(x, grid.count) for x in (row, place, every))
    for item in range(grid.count):
        if every[item]:
            rows[item].fill_(value)
        else:
            rows[item, int(row[item]), int(place[item])] = value


class _Formula:
    """The row of a family in the making, on one grid."""

    def __init__(self, row: Row, grid: Grid) -> None:
        self._row, self._grid = row, grid
        # Bits of k, where they are the value's, and where it is negative.
        self._k: Any = 0
        self._negative: Any = None

    def _at(self, column: Column) -> Any:
        return self._grid.laid(self._row.get(column, 0))

    def _drawn(self, column: Column) -> Tensor:
        """Return the words of a key, one per element or per row."""
        stream = self._row[column]
        if self._row[Column.STEP]:
            return self._grid.words(stream)
        return self._grid.row_words(stream)

    def _of_row(self, column: Column) -> Tensor:
        return self._grid.row_words(self._row[column])

    def write(self, rows: Tensor) -> None:
        """Write the values of the grid's shape, in the dtype of its format."""
        row, grid = self._row, self._grid
        if row.keys() <= {Column.A}:  # one number throughout
            rows.fill_(row.get(Column.A, 0.0))
            return
        raw = rows.view(INTEGERS[rows.element_size()])
        value = self._value()
        if Column.HAS_LAST in row or Column.HAS_FIRST in row:
            value = value.expand(grid.shape).clone()
            if Column.HAS_LAST in row:
                value[..., -1:] = self._at(Column.LAST)
            if Column.HAS_FIRST in row:
                value[..., :1] = self._at(Column.FIRST)
        if Column.RAW in row:
            # Two's complement: setting the top bit subtracts 2**(width - 1).
            top = -(1 << (8 * rows.element_size() - 1))
            raw.copy_(self._k + self._negative * top)
            return
        if self._negative is not None:
            value = value * signs(self._negative)
        rows.copy_(narrowed(value, grid.fmt) if Column.ROUNDED in row else value)
        self._overwrite(raw)

    def _value(self) -> Tensor:
        """Return the value before signs, float64 that broadcasts to the shape."""
        row = self._row
        value = self._integers()
        factor = row.get(Column.B, 1.0)
        if row.get(Column.MODE):  # the grid draws k in units of 2**-31
            factor = factor * 2.0**31
        if not isinstance(factor, float) or factor != 1.0:
            value = value * self._grid.laid(factor)
        if Column.A in row:
            value = self._at(Column.A) + value
        if Column.C in row:
            value = value * self._at(Column.C)
        if Column.EXPONENTS in row:
            word = self._drawn(Column.EXPONENT_KEY)
            if Column.SHIFT in row:
                word = word >> row[Column.SHIFT]
            exponent = word % self._at(Column.EXPONENTS) + self._at(Column.LEAST)
            value = value * power_of_two(exponent)
        if Column.SIGNED in row:
            self._negative = self._drawn(Column.SIGN_KEY) >> 31
            signed = self._at(Column.SIGNED)
            if isinstance(signed, Tensor) or signed != 1:
                self._negative = self._negative & signed
        special = _CODES.get(row.get(Column.CODE, Code.PLAIN))
        return value if special is None else special(self, value)

    def _integers(self) -> Tensor:
        """Return k as float64; of normal values in units of one."""
        row, grid = self._row, self._grid
        if mode := row.get(Column.MODE):
            values = grid.normal(row[Column.KEY])
            return values.abs() if mode == 2 else values
        k: Any = 0
        low: Tensor | None = None
        if Column.FACTOR in row:
            drawn, count = self._drawn(Column.KEY), self._at(Column.COUNT)
            wide = grid.fmt.precision > 24 and row[Column.STEP]
            if Column.COUNT not in row:
                # Finer than 32 bits where the format is.
                low = grid.words(row[Column.KEY] + 1) >> 12 if wide else None
            elif isinstance(count, int) and count > 1 << 32:
                fine = grid.words(row[Column.KEY] + 1) >> 12
                drawn = ((drawn << 20) | fine) % count
            else:
                drawn = drawn % count
            factor = row[Column.FACTOR]
            k = drawn if factor == 1 else drawn * factor
        if Column.ROW_COUNT in row:
            k = k + self._of_row(Column.ROW_KEY) % row[Column.ROW_COUNT]
        if Column.POSITION in row:
            k = k + grid.position * row[Column.POSITION]
        if Column.START in row:
            k = k + self._at(Column.START)
        self._k = k
        if not isinstance(k, Tensor):
            return torch.full((1, 1), k, dtype=torch.float64, device=grid.device)
        real: Tensor = k.to(torch.float64)
        return real if low is None else real + low.to(torch.float64) * 2.0**-20

    def ties(self, value: Tensor) -> Tensor:
        flat = self._at(Column.AUX)
        word = self._drawn(Column.KEY)
        below = torch.clamp((word & 3) - 1, min=0)
        top = (self._of_row(Column.ROW_KEY) % 5 - 2) * (1 - flat)
        self._negative = ((word >> 2) & flat) * (below == 0)
        values: Tensor = (top - below).to(torch.float64)
        return values

    def balanced(self, value: Tensor) -> Tensor:
        grid = self._grid
        word = self._of_row(Column.ROW_KEY)
        scale = ((word & 1) * 2 + 1).to(torch.float64)
        scale = scale * power_of_two((word >> 1) % 6 - 2)
        position = grid.position
        pair = grid.words_at(self._row[Column.KEY], position >> 1)
        self._negative = (pair + position) & 1
        if grid.n % 2 == 0:
            return scale
        lone = position == grid.n - 1
        self._negative = torch.where(lone, 0, self._negative)
        return torch.where(lone, 0.0, scale)

    def walk(self, value: Tensor) -> Tensor:
        grid, position = self._grid, self._grid.position
        half = (grid.n - 1) // 2
        mirrored = torch.minimum(position, 2 * half - 1 - position).clamp(min=0)
        drawn = grid.words_at(self._row[Column.KEY], mirrored)
        step: Tensor = drawn % self._row[Column.AUX] + 1
        step = torch.where(position < half, step, -step)
        rest = self._of_row(Column.ROW_KEY) & 3
        rest = torch.where(position == grid.n - 1, rest, 0)
        return torch.where(position < 2 * half, step, rest).to(torch.float64)

    def cancel(self, value: Tensor) -> Tensor:
        grid, position = self._grid, self._grid.position
        opposite = grid.n - 1 - position
        pair = torch.minimum(position, opposite)
        word = grid.words_at(self._row[Column.EXPONENT_KEY], pair)
        fraction = grid.words_at(self._row[Column.SIGN_KEY], pair).to(torch.float64)
        exponent = self._row[Column.AUX] - (word >> 1) % 5
        sign = signs(((word >> 8) & 1) ^ (position > opposite).to(torch.int64))
        large = (1.0 + fraction * 2.0**-32) * power_of_two(exponent) * sign
        is_large = ((word & 1) | (pair == 0).to(torch.int64)) > 0
        return torch.where(is_large & (position != opposite), large, value)

    def _edge(self, words: Tensor) -> Tensor:
        return self._grid.places(edges(self._grid.n), words)

    def one_hot(self, value: Tensor) -> Tensor:
        grid = self._grid
        place: Tensor | int = grid.n - 1
        if Column.AUX in self._row:
            place = self._edge(grid.row_words(self._row[Column.KEY]))
        one = self._of_row(Column.ROW_KEY) % 4 + 1
        return torch.where(grid.position == place, one, 0).to(torch.float64)

    def edge(self, value: Tensor) -> Tensor:
        place = self._edge(self._of_row(Column.ROW_KEY))
        is_there = self._grid.position == place
        return torch.where(is_there, self._at(Column.LAST), value)

    def mixed(self, value: Tensor) -> Tensor:
        grid, large = self._grid, value * self._at(Column.LAST)
        kind = self._of_row(Column.ROW_KEY) % MIXED_KINDS
        is_first = grid.row < self._at(Column.OTHER)
        kind = torch.where(is_first, self._at(Column.AUX), kind)
        value = torch.where(kind == 1, 0.0, value)
        value = torch.where(kind == 2, torch.floor(large * 2.0**-4), value)
        value = torch.where(kind == 3, large, value)
        below = -2.0 * self._at(Column.LAST) - value.abs()
        return torch.where(kind == 4, below, value)

    def permutation(self, value: Tensor) -> Tensor:
        grid = self._grid
        place = (grid.row * self._at(Column.AUX) + self._at(Column.OTHER)) % grid.n
        one: Tensor = grid.position == place
        return one.to(torch.float64)

    def hadamard(self, value: Tensor) -> Tensor:
        parity = (self._grid.row ^ self._at(Column.AUX)) & self._grid.position
        for shift in (16, 8, 4, 2, 1):
            parity = parity ^ (parity >> shift)
        self._negative = parity & 1
        return value

    def _overwrite(self, raw: Tensor) -> None:
        """Write what is no number: infinities, hidden places, one special value."""
        grid, row = self._grid, self._row
        code, spot = row.get(Column.CODE), row.get(Column.SPOT)
        if code is None and spot is None:
            return
        if code in _HIDING:
            minus, plus = grid.signed(
                [infinity_bits(grid.fmt.name, negative=sign) for sign in (True, False)]
            )
        match code:
            case Code.MASKED:
                raw.masked_fill_(self._mask(), minus)
            case Code.MASKED_ROWS:
                word = self._of_row(Column.EXPONENT_KEY)
                raw.masked_fill_((word >> 31 > 0) | (grid.row == 0), minus)
            case Code.INFINITIES:
                word = self._of_row(Column.EXPONENT_KEY)
                which = torch.where(grid.row == 0, 3, word & 3)
                first = (word >> 2) % grid.n
                further = self._of_row(Column.SIGN_KEY) % max(grid.n - 1, 1)
                second = (first + 1 + further) % grid.n
                for bit, place, bits in ((1, first, plus), (2, second, minus)):
                    there = (grid.position == place) & ((which & bit) > 0)
                    raw.masked_fill_(there, bits)
        if isinstance(spot, int):
            raw.view(-1)[spot - 1] = row[Column.SPOT_BITS]
        elif spot is not None:
            flat = np.arange(grid.count) * (grid.rows * grid.n)
            both = np.stack((flat + spot - 1, row[Column.SPOT_BITS]))
            at, made = uploaded(both, grid.device).unbind(0)
            raw.view(-1).index_put_((at,), made.to(raw.dtype))

    def _mask(self) -> Tensor:
        """Return where a masked row is hidden."""
        grid, kinds = self._grid, self._row[Column.AUX]
        position = grid.position
        keep = self._of_row(Column.EXPONENT_KEY) % grid.n
        makers: tuple[Callable[[], Tensor], ...] = (
            lambda: (
                (grid.words(self._row[Column.SIGN_KEY]) >> 31 > 0) & (position != keep)
            ),
            lambda: position > keep,
            lambda: position > grid.row % grid.n,
        )
        first, *others = np.unique(kinds).tolist()
        hidden: Tensor = makers[first]()
        wanted = self._at(Column.AUX)
        for kind in others:
            is_so: Tensor = wanted == kind
            hidden = torch.where(is_so, makers[kind](), hidden)
        return hidden


_HIDING: Final = (Code.MASKED, Code.MASKED_ROWS, Code.INFINITIES)
_CODES: Final[dict[Code, Callable[[_Formula, Tensor], Tensor]]] = {
    Code.TIES: _Formula.ties,
    Code.BALANCED: _Formula.balanced,
    Code.WALK: _Formula.walk,
    Code.CANCEL: _Formula.cancel,
    Code.ONE_HOT: _Formula.one_hot,
    Code.EDGE: _Formula.edge,
    Code.MIXED: _Formula.mixed,
    Code.PERMUTATION: _Formula.permutation,
    Code.HADAMARD: _Formula.hadamard,
}
