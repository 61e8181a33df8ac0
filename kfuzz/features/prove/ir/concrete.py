"""A graph on one launch: which bytes each program touches, by its formulas."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.launches.capture import Launch, TensorArgument
from kfuzz.features.prove.fitting import quantities
from kfuzz.features.prove.ir.values import (
    CHOICE,
    DATA,
    GREATEST,
    ITERATION,
    LANE,
    LEAST,
    PROGRAM,
    QUOTIENT,
    REMAINDER,
    SYMBOL,
    Access,
    Atom,
    Graph,
    UnknownValueError,
    Valuation,
    atoms_in,
)

Array = NDArray[Any]
Key = tuple[str, str]

_MOST: Final = 1 << 22
"""Lanes, iterations and programs of one access at most."""
_PROGRAMS: Final = 512


def touched(graph: Graph, launch: Launch) -> tuple[dict[Key, Array], set[Key], int]:
    """Return what programs touch.

    Returns:
        By kind and argument the pairs of a program's number and a byte's distance, as
        of `Observed`; those of which some access depends on data; and for how many
        programs, from the first.
    """
    found: dict[Key, list[Array]] = {}
    partly: set[Key] = set()
    programs = min(int(np.prod(launch.grid)), _PROGRAMS)
    first: dict[int, str] = {}
    for name, argument in launch.arguments.items():
        if isinstance(argument, TensorArgument):
            first.setdefault(argument.storage, name)
    for access in graph.accesses:
        found_argument = launch.arguments.get(access.base)
        if not isinstance(found_argument, TensorArgument):
            raise UnknownValueError("an access through no argument")
        argument = found_argument
        key = access.kind, first[argument.storage]
        try:
            pairs = _pairs(access, launch, programs, argument.itemsize)
            found.setdefault(key, []).append(pairs)
        except UnknownValueError:
            partly.add(key)
    made = {k: np.unique(np.concatenate(v), axis=0) for k, v in found.items() if v}
    return {k: v for k, v in made.items() if v.size}, partly, programs


def _pairs(access: Access, launch: Launch, programs: int, itemsize: int) -> Array:
    loops = sorted(
        {
            a.parts[0]
            for part in (access.offset, access.mask, access.path)
            for a in atoms_in(part)
            if a.kind == ITERATION
        }
    )
    counts = [8] * len(loops)
    while True:
        frame = _Frame(launch, programs, loops, counts, access.shape)
        reached = np.broadcast_to(frame.cond(access.path), frame.shape)
        longer = [
            place
            for place in range(len(loops))
            if np.take(reached, -1, axis=1 + place).any()
        ]
        if not longer:
            break
        for place in longer:
            counts[place] *= 2
    live = reached & np.broadcast_to(frame.cond(access.mask), frame.shape)
    offsets = np.broadcast_to(frame.poly(access.offset), frame.shape)[live]
    numbers = np.broadcast_to(frame.programs, frame.shape)[live]
    pairs = np.stack([numbers, offsets * itemsize], 1)
    return np.unique(pairs, axis=0)


class _Frame(Valuation):
    """Arrays over programs, iterations and lanes."""

    def __init__(
        self, launch: Launch, programs: int, loops: list[int], counts: list[int],
        block: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.shape = (programs, *counts, *block)
        if int(np.prod([n for n in self.shape if n] or [1])) > _MOST:
            raise UnknownValueError("too much")
        super().__init__(
            {
                atom: np.asarray(value if -(2**63) <= value < 2**63 else 0, np.int64)
                for atom, value in quantities(launch).items()
            }
        )
        self._loops, self._rank = loops, len(self.shape)
        self.programs = self._along(0, programs)
        x, y, _ = launch.grid
        self._places = (
            self.programs % x, self.programs // x % y, self.programs // (x * y),
        )  # fmt: skip

    def _along(self, axis: int, count: int) -> Array:
        shape = [1] * self._rank
        shape[axis] = count
        return np.arange(count, dtype=np.int64).reshape(shape)

    def _computed(self, atom: Atom) -> Array:
        kind, parts = atom.kind, atom.parts
        if kind == PROGRAM:
            return self._places[parts[0]]
        if kind == LANE:
            axis = 1 + len(self._loops) + parts[0]
            return self._along(axis, self.shape[axis])
        if kind == ITERATION:
            axis = 1 + self._loops.index(parts[0])
            return self._along(axis, self.shape[axis])
        if kind in (DATA, SYMBOL):
            raise UnknownValueError(str(atom))
        if kind == CHOICE:
            condition, then, other = parts
            held, a, b = self.cond(condition), self.poly(then), self.poly(other)
            return np.asarray(np.where(held, a, b))
        left, right = (self.poly(part) for part in parts)
        if kind == LEAST:
            return np.asarray(np.minimum(left, right))
        if kind == GREATEST:
            return np.asarray(np.maximum(left, right))
        divisor = np.where(right == 0, 1, right)
        whole = np.abs(left) // np.abs(divisor) * np.sign(left) * np.sign(divisor)
        if kind == QUOTIENT:
            return np.asarray(whole)
        assert kind == REMAINDER
        return np.asarray(left - whole * divisor)

    def _joined(self, kind: str, held: Iterator[Any]) -> Any:
        if kind == "not":
            return np.logical_not(next(held))
        return reduce(np.logical_and if kind == "and" else np.logical_or, held)


def difference(
    graph: Graph, launch: Launch, observed: Mapping[Key, Array], unowned: int
) -> str:
    """Return how a graph differs from what a launch did, "" where it does not.

    Args:
        graph: of the kernel.
        launch: the launch.
        observed: what it touched.
        unowned: accesses of it through pointers that come from no argument.
    """
    if unowned:
        return "a real launch accesses memory that is no argument's"
    try:
        made, partly, programs = touched(graph, launch)
    except UnknownValueError:
        return ""
    for key in {*made, *observed}:
        kind, name = key
        real = observed.get(key, np.zeros((0, 2), np.int64))
        real = real[real[:, 0] < programs]
        told = made.get(key, np.zeros((0, 2), np.int64))
        if key not in partly and not np.array_equal(real, told):
            return f"a real launch has other {kind}s of {name} than its IR says"
        if key in partly:
            every = {tuple(pair) for pair in real.tolist()}
            if any(tuple(pair) not in every for pair in told.tolist()):
                return f"a real launch lacks {kind}s of {name} that its IR has"
    return ""
