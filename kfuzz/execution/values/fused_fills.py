"""Launches of `fused_kernel`: the tables of the arguments of a burst, and the rest."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.tiles import edges
from kfuzz.execution.values import fused_kernel as at
from kfuzz.execution.values.fused_families import FAMILIES as FAMILIES
from kfuzz.execution.values.fused_families import Draw, columns_of
from kfuzz.execution.values.generator import uploaded
from kfuzz.execution.values.grids import Streams
from kfuzz.execution.values.patterns import INTEGERS, as_signed, infinity_bits
from kfuzz.numerics.formats import FORMATS

DTYPES: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})


@dataclass(frozen=True, eq=False)
class _Job:
    """One argument to be filled.

    Attributes:
        values: [members, *shape], contiguous, not empty.
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
        """Have the values of all members written, each of the family of its run.

        Args:
            values: [members, *shape], contiguous, not empty, of one of `DTYPES`.
            runs: (first, one past the last, one of `FAMILIES`); what other members
                hold stays.
            streams: of all members.
            axis: the structured axis, counted from the end.
            plants: what is overwritten, as `planting.Overwrites.columns` gives it.
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
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
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
    """Return the table of the members, and behind it where tiles meet."""
    shape = values.shape[1:]
    total = math.prod(shape)
    n = shape[axis] if shape else 1
    places = edges(n)
    columns, members = at.COLUMNS.value, len(values)
    behind = members * columns
    # An even number: compiled kernels are told whether a table begins at 16 bytes.
    size = behind + len(places) + len(places) % 2
    held = np.zeros(size, dtype=np.int64)
    held[behind : behind + len(places)] = places
    table = held[:behind].reshape(members, columns)
    reals = table.view(np.float64)
    table[:, at.CODE.value] = at.NOTHING.value
    fmt = FORMATS[str(values.dtype).removeprefix("torch.")]
    for start, stop, family in runs:
        draw = Draw(streams, start, stop, total // n, n, fmt)
        row = np.zeros(columns, dtype=np.int64)
        real = row.view(np.float64)
        real[at.B.value] = real[at.C.value] = 1.0
        arrays = []
        for column, made in columns_of(family, draw).items():
            if isinstance(made, np.ndarray):
                arrays.append((column.value, made))
            elif isinstance(made, float):
                real[column.value] = made
            else:
                row[column.value] = getattr(made, "value", made)
        table[start:stop] = row
        for number, made in arrays:
            into = reals if made.dtype.kind == "f" else table
            into[start:stop, number] = made
    if plants is not None:
        table[:, at.PLANTS.value :] = plants.reshape(members, -1)
    return held


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
    at.generate[(triton.cdiv(total, at.BLOCK), len(values))](
        values.view(INTEGERS[size]),
        given,
        given[len(values) * at.COLUMNS.value :],
        total,
        shape[job.axis] if shape else 1,
        math.prod(shape[job.axis :][1:]) if shape else 1,
        ITEMSIZE=size,
        PRECISION=fmt.precision,
        EMIN=fmt.emin,
        PLUS=plus,
        MINUS=minus,
        BLOCK=at.BLOCK,
        # A product is rounded before it is added to, as everywhere else.
        enable_fp_fusion=False,
    )
