"""The value families as one Triton kernel: all items of a batch in one launch.

A row of a table says per item what is made, as the formulas of
`kfuzz.core.value_families` give it. It gives the bits that `formula` gives. Words are
32 bits wide and wrap around, which are the lower halves that `generator.mixed` keeps.
"""
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core import value_families as families
from kfuzz.core.value_families import (
    FAMILIES,
    KEYS,
    REALS,
    Code,
    Column,
    edges,
    infinity_bits,
)
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.values.formula import INTEGERS, Grid, Streams, as_signed, uploaded
from kfuzz.numerics.formats import FORMATS

# What a kernel may read of a module are constants of its own: each column and code has
# its name here.
globals().update({each.name: tl.constexpr(int(each)) for each in (*Column, *Code)})
SLOTS: Final = tl.constexpr(families.SLOTS)
COLUMNS: Final = tl.constexpr(int(families.COLUMNS))
MIXED_KINDS: Final = tl.constexpr(families.MIXED_KINDS)

_BLOCK: Final = 512


@triton.jit
def _word(key, counter):  # type: ignore[no-untyped-def]
    """Return a word per counter, see `generator.mixed`."""
    x = counter + key.to(tl.uint32)
    x = x ^ (x >> 16)
    x = x * 0x21F0AAAD
    x = x + (key >> 32).to(tl.uint32)
    x = x ^ (x >> 15)
    x = x * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _power(exponent):  # type: ignore[no-untyped-def]
    """Return 2**exponent as float64."""
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _number(at):  # type: ignore[no-untyped-def]
    """Return the float64 of a column."""
    return tl.load(at).to(tl.float64, bitcast=True)


@triton.jit(do_not_specialize=["total", "n", "inner"])  # type: ignore[untyped-decorator]
def generate(  # type: ignore[no-untyped-def]
    out_ptr, table_ptr, places_ptr, total, n, inner,
    ITEMSIZE: tl.constexpr, PRECISION: tl.constexpr, EMIN: tl.constexpr,
    PLUS: tl.constexpr, MINUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a block of the elements of one item.

    Args:
        out_ptr: integers as wide as the format, [items, total].
        table_ptr: int64 [items, COLUMNS].
        places_ptr: int64, where tiles meet along the structured axis.
        total: elements of one item.
        n: size of the structured axis.
        inner: product of the sizes behind it.
        ITEMSIZE: bytes of an element, 2 or 4.
        PRECISION: of the format, at most 24.
        EMIN: of the format.
        PLUS: bits of +Inf as a signed integer.
        MINUS: bits of -Inf.
        BLOCK: elements per program.
    """
    item = tl.program_id(1).to(tl.int64)
    t = table_ptr + item * COLUMNS
    flat = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    outer = flat // inner
    position = (outer % n).to(tl.int64)
    row = ((outer // n) * inner + flat % inner).to(tl.int64)
    row_counter = row.to(tl.uint32)
    counter = (
        row * tl.load(t + ROW_STEP) + position * tl.load(t + STEP)
    ).to(tl.uint32)  # fmt: skip
    key = tl.load(t + KEY)
    exponent_key = tl.load(t + EXPONENT_KEY)
    sign_key = tl.load(t + SIGN_KEY)
    row_key = tl.load(t + ROW_KEY)
    code = tl.load(t + CODE)
    aux = tl.load(t + AUX)
    size = position * 0 + n

    word = _word(key, counter)
    mode = tl.load(t + MODE)
    k = position * tl.load(t + POSITION) + tl.load(t + START)
    if mode != 0:
        other = _word(key, counter + (size * 0 + total).to(tl.uint32))
        bell = (word & 0xFFFF) + (word >> 16) + (other & 0xFFFF) + (other >> 16)
        low = (word ^ (other >> 8)) & 0xFFFF
        k = ((bell.to(tl.int64) - 131070) << 16) + low.to(tl.int64) - 0x8000
        if mode == 2:
            k = tl.abs(k)
    else:
        count = tl.load(t + COUNT)
        drawn = word.to(tl.int64)
        if count > 0:
            drawn = (word % count.to(tl.uint32)).to(tl.int64)
        k += drawn * tl.load(t + FACTOR)
        rows = tl.load(t + ROW_COUNT)
        if rows > 1:
            k += (_word(row_key, row_counter) % rows.to(tl.uint32)).to(tl.int64)
    value = (_number(t + A) + k.to(tl.float64) * _number(t + B)) * _number(t + C)
    exponents = tl.load(t + EXPONENTS)
    if exponents > 0:
        drawn = _word(exponent_key, counter) >> tl.load(t + SHIFT).to(tl.uint32)
        drawn = drawn % exponents.to(tl.uint32)
        value = value * _power(drawn.to(tl.int64) + tl.load(t + LEAST))
    negative = position * 0
    if tl.load(t + SIGNED) != 0:
        negative = (_word(sign_key, counter) >> 31).to(tl.int64)

    last = size - 1
    if code == TIES:
        below = (word & 3).to(tl.int64) - 1
        below = tl.where(below < 0, 0, below)
        drawn = _word(row_key, row_counter) % (row_counter * 0 + 5)
        top = (drawn.to(tl.int64) - 2) * (1 - aux)
        value = (top - below).to(tl.float64)
        zero = ((word >> 2) & 1).to(tl.int64) & aux
        negative = tl.where(below == 0, zero, position * 0)
    if code == BALANCED:
        drawn = _word(row_key, row_counter).to(tl.int64)
        scale = ((drawn & 1) * 2 + 1).to(tl.float64)
        value = scale * _power((drawn >> 1) % 6 - 2)
        pair = (row * n + (position >> 1)).to(tl.uint32)
        negative = (_word(key, pair).to(tl.int64) + position) & 1
        lone = (position == last) & (size % 2 == 1)
        value = tl.where(lone, 0.0, value)
        negative = tl.where(lone, 0, negative)
    if code == WALK:
        half = (size - 1) // 2
        mirrored = tl.minimum(position, 2 * half - 1 - position)
        mirrored = tl.where(mirrored < 0, 0, mirrored)
        drawn = _word(key, (row * n + mirrored).to(tl.uint32))
        step = (drawn % aux.to(tl.uint32)).to(tl.int64) + 1
        step = tl.where(position < half, step, -step)
        rest = (_word(row_key, row_counter) & 3).to(tl.int64)
        rest = tl.where(position == last, rest, 0)
        value = tl.where(position < 2 * half, step, rest).to(tl.float64)
    if code == CANCEL:
        opposite = last - position
        pair = tl.minimum(position, opposite)
        pairs = (row * n + pair).to(tl.uint32)
        drawn = _word(exponent_key, pairs).to(tl.int64)
        fraction = _word(sign_key, pairs).to(tl.float64)
        scale = _power(aux - (drawn >> 1) % 5)
        # 2**-32, exact as any scaling here.
        large = (1.0 + fraction * _power(position * 0 - 32)) * scale
        behind = (position > opposite).to(tl.int64)
        turned = (((drawn >> 8) & 1) ^ behind) != 0
        large = tl.where(turned, large * -1.0, large)
        is_large = ((drawn & 1) != 0) | (pair == 0)
        value = tl.where(is_large & (position != opposite), large, value)
    if code == ONE_HOT:
        place = last
        if aux > 0:
            drawn = _word(key, row_counter) % aux.to(tl.uint32)
            place = tl.load(places_ptr + drawn.to(tl.int64))
        one = (_word(row_key, row_counter) & 3).to(tl.int64) + 1
        value = tl.where(position == place, one, 0).to(tl.float64)
    if code == EDGE:
        drawn = _word(row_key, row_counter) % aux.to(tl.uint32)
        place = tl.load(places_ptr + drawn.to(tl.int64))
        value = tl.where(position == place, _number(t + LAST), value)
    if code == MIXED:
        large = value * _number(t + LAST)
        drawn = _word(row_key, row_counter) % (row_counter * 0 + MIXED_KINDS)
        kind = tl.where(row < tl.load(t + OTHER), aux, drawn.to(tl.int64))
        value = tl.where(kind == 1, 0.0, value)
        # 2**-4, exact as any scaling here.
        whole = tl.floor(large * _power(position * 0 - 4))
        value = tl.where(kind == 2, whole, value)
        value = tl.where(kind == 3, large, value)
        below = _number(t + LAST) * -2.0 - tl.abs(value)
        value = tl.where(kind == 4, below, value)
    if code == PERMUTATION:
        place = (row * aux + tl.load(t + OTHER)) % size
        value = (position == place).to(tl.float64)
    if code == HADAMARD:
        parity = (row ^ aux) & position
        parity = parity ^ (parity >> 16)
        parity = parity ^ (parity >> 8)
        parity = parity ^ (parity >> 4)
        parity = parity ^ (parity >> 2)
        negative = (parity ^ (parity >> 1)) & 1

    if tl.load(t + HAS_LAST) != 0:
        value = tl.where(position == last, _number(t + LAST), value)
    if tl.load(t + HAS_FIRST) != 0:
        value = tl.where(position == 0, _number(t + FIRST), value)
    value = value * (1.0 - 2.0 * negative.to(tl.float64))

    if PRECISION < 24 and tl.load(t + ROUNDED) != 0:
        # See `generator.narrowed`.
        field = (value.to(tl.int64, bitcast=True) >> 52) & 0x7FF
        field = tl.where(field < EMIN + 1023, EMIN + 1023, field)
        magic = ((field + (53 - PRECISION)) << 52) | (field * 0 + 1) << 51
        magic = magic.to(tl.float64, bitcast=True)
        value = (value + magic) - magic
    # The value is one of the format: both conversions are exact.
    single = value.to(tl.float32)
    if ITEMSIZE == 4:
        bits = single.to(tl.int32, bitcast=True).to(tl.int64)
    elif PRECISION == 8:
        bits = (single.to(tl.int32, bitcast=True) >> 16).to(tl.int64)
    else:
        bits = single.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int64)
    if tl.load(t + RAW) != 0:
        bits = k + (negative << (8 * ITEMSIZE - 1))

    if code == MASKED:
        drawn = _word(exponent_key, row_counter).to(tl.int64) % size
        hidden = tl.where(aux == 3, position < drawn, position > drawn)
        if aux == 0:
            hidden = ((_word(sign_key, counter) >> 31) != 0) & (position != drawn)
        if aux == 2:
            hidden = position > row % size
        bits = tl.where(hidden, MINUS, bits)
    if code == MASKED_ROWS:
        whole = ((_word(exponent_key, row_counter) >> 31) != 0) | (row == 0)
        bits = tl.where(whole, MINUS, bits)
    if code == INFINITIES:
        drawn = _word(exponent_key, row_counter).to(tl.int64)
        which = tl.where(row == 0, 3, drawn & 3)
        first = (drawn >> 2) % size
        others = tl.where(size > 1, size - 1, 1)
        further = _word(sign_key, row_counter).to(tl.int64) % others
        second = (first + 1 + further) % size
        bits = tl.where((position == first) & ((which & 1) != 0), PLUS, bits)
        bits = tl.where((position == second) & ((which & 2) != 0), MINUS, bits)
    spot = tl.load(t + SPOT)
    if spot > 0:
        here = row * n + position == spot - 1
        bits = tl.where(here, tl.load(t + SPOT_BITS), bits)
    for slot in tl.static_range(SLOTS):
        planted = tl.load(t + (PLANTS + 2 * slot))
        if planted > 0:
            bits = tl.where(
                flat == planted - 1, tl.load(t + (PLANTS + 2 * slot + 1)), bits
            )
    out = out_ptr + item * total + flat
    if code != NOTHING:
        if ITEMSIZE == 4:
            tl.store(out, bits.to(tl.int32), mask=flat < total)
        else:
            tl.store(out, bits.to(tl.int16), mask=flat < total)


# Launches: the tables of the arguments of a batch, and the rest.

DTYPES: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})


@dataclass(frozen=True, eq=False)
class _Job:
    """One argument to be filled.

    Attributes:
        values: [items, *shape], contiguous, not empty.
        axis: the structured axis, counted from the end.
        held: what the kernel is told, flat.
    """

    values: Tensor
    axis: int
    held: NDArray[np.int64]


class Fills:
    """Arguments to be filled, whose tables go to the device together."""

    def __init__(self) -> None:
        """Begin with none."""
        self._jobs: list[_Job] = []

    def add(
        self,
        values: Tensor,
        runs: Sequence[tuple[int, int, str]],
        streams: Streams,
        *,
        axis: int,
        plants: NDArray[np.int64] | None = None,
    ) -> None:
        """Have the values of all items written, each of the family of its run.

        Args:
            values: [items, *shape], contiguous, not empty, of one of `DTYPES`.
            runs: (first, one past the last, a family that copies nothing); what
                other items hold stays.
            streams: of all items.
            axis: the structured axis, counted from the end.
            plants: what is overwritten, as `items.Overwrites.columns` gives it.
        """
        held = _held(values, runs, streams, axis, plants)
        self._jobs.append(_Job(values, axis, held))

    def send(self) -> None:
        """Write all that was added since the last time."""
        jobs, self._jobs = self._jobs, []
        if not jobs:
            return
        device = jobs[0].values.device
        every = [job.held for job in jobs]
        given = uploaded(every[0] if len(jobs) == 1 else np.concatenate(every), device)
        start = 0
        with backend_of(device).selected(device):
            for job in jobs:
                _generate(job, given[start:] if start else given)
                start += len(job.held)


def _held(
    values: Tensor,
    runs: Sequence[tuple[int, int, str]],
    streams: Streams,
    axis: int,
    plants: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Return the table of the items, and behind it where tiles meet."""
    shape = values.shape[1:]
    total = math.prod(shape)
    n = shape[axis] if shape else 1
    places = edges(n)
    items = len(values)
    behind = items * families.COLUMNS
    # An even number: compiled kernels are told whether a table begins at 16 bytes.
    size = behind + len(places) + len(places) % 2
    held = np.zeros(size, dtype=np.int64)
    held[behind : behind + len(places)] = places
    table = held[:behind].reshape(items, families.COLUMNS)
    table[:, Column.CODE] = Code.NOTHING
    fmt = FORMATS[str(values.dtype).removeprefix("torch.")]
    for start, stop, family in runs:
        grid = Grid(total // n, n, fmt, streams, start, stop)
        _write(table[start:stop], family, grid)
    if plants is not None:
        table[:, Column.PLANTS :] = plants.reshape(items, -1)
    return held


def _write(table: NDArray[np.int64], family: str, grid: Grid) -> None:
    """Write the rows of the items of a grid: what their family's formula says."""
    make: Any = FAMILIES[family].make
    reals = table.view(np.float64)
    table[:] = 0
    reals[:, [Column.B, Column.C]] = 1.0
    for column, made in make(grid).items():
        if column in KEYS:
            keys = grid.streams.key(made)[grid.start : grid.stop]
            table[:, column] = keys.view(np.int64)
        elif column in REALS:
            reals[:, column] = made
        else:
            table[:, column] = made


def _generate(job: _Job, given: Tensor) -> None:
    """Launch the kernel for one argument; its table is at the start of `given`."""
    values = job.values
    shape = values.shape[1:]
    total = math.prod(shape)
    fmt = FORMATS[str(values.dtype).removeprefix("torch.")]
    size = values.element_size()
    plus, minus = (
        as_signed(infinity_bits(fmt.name, negative=sign), size)
        for sign in (False, True)
    )
    generate[(triton.cdiv(total, _BLOCK), len(values))](
        values.view(INTEGERS[size]),
        given,
        given[len(values) * families.COLUMNS :],
        total,
        shape[job.axis] if shape else 1,
        math.prod(shape[job.axis :][1:]) if shape else 1,
        ITEMSIZE=size,
        PRECISION=fmt.precision,
        EMIN=fmt.emin,
        PLUS=plus,
        MINUS=minus,
        BLOCK=_BLOCK,
        # A product is rounded before it is added to, as everywhere else.
        enable_fp_fusion=False,
    )
