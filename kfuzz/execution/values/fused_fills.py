"""Launches of `fused_kernel`: the tables of the arguments of a batch, and the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.value_families import (
    COLUMNS,
    FAMILIES,
    KEYS,
    REALS,
    Code,
    Column,
    infinity_bits,
)
from kfuzz.core.value_families.tiles import edges
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.values import fused_kernel
from kfuzz.execution.values.generator import (
    INTEGERS,
    Grid,
    Streams,
    as_signed,
    uploaded,
)
from kfuzz.numerics.formats import FORMATS

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
    behind = items * COLUMNS
    # An even number: compiled kernels are told whether a table begins at 16 bytes.
    size = behind + len(places) + len(places) % 2
    held = np.zeros(size, dtype=np.int64)
    held[behind : behind + len(places)] = places
    table = held[:behind].reshape(items, COLUMNS)
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
    fused_kernel.generate[(triton.cdiv(total, fused_kernel.BLOCK), len(values))](
        values.view(INTEGERS[size]),
        given,
        given[len(values) * COLUMNS :],
        total,
        shape[job.axis] if shape else 1,
        math.prod(shape[job.axis :][1:]) if shape else 1,
        ITEMSIZE=size,
        PRECISION=fmt.precision,
        EMIN=fmt.emin,
        PLUS=plus,
        MINUS=minus,
        BLOCK=fused_kernel.BLOCK,
        # A product is rounded before it is added to, as everywhere else.
        enable_fp_fusion=False,
    )
