"""What the launches of a kernel have in common: the premises of a proof.

A wrapper turns the operator's dimensions and strides into integers, constants and a
grid. How it does so is not read but fitted: on some launches, and held against others.
An expression that holds on all is a premise; it is printed, and a launch that breaks it
withdraws the proof. What nothing fits is free, which asks more of a proof, not less.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.execution.launches.launch import (
    UNKNOWN,
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)
from kfuzz.prove.ir.terms import (
    SYMBOL,
    Atom,
    Cond,
    Poly,
    UnknownValueError,
    Valuation,
    all_of,
    at_most,
    atoms_in,
    quotient,
)
from kfuzz.prove.ir.values import grid, symbol

MOST_ELEMENTS: Final = 1 << 40
"""Elements from the first to the last one of a tensor at most."""
NEAR: Final = 1 << 20
"""No integer argument lies so near below 2^31: a 32-bit counter that steps over it
wraps, in every loop of Triton's."""

_AXES: Final = frozenset(grid(axis) for axis in range(3))
SMALL: Final = (1 << 31) - NEAR
"""What 32-bit offsets reach in any case."""


@dataclass(frozen=True)
class Premise:
    """What has to hold of a launch."""

    holds: Cond
    text: str


@dataclass(frozen=True)
class Layout:
    """How an argument's elements lie, over the symbols of a launch.

    Attributes:
        sizes: per dimension, outermost first.
        strides: in elements.
        span: elements from the pointer to the end of the last one.
        distinct: whether no two elements share memory.
        dense: whether no memory lies between elements, so that any offset in
            [0, span) is one.
    """

    sizes: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    span: Poly
    dense: bool
    distinct: bool = True


@dataclass(frozen=True)
class Relations:
    """The premises of one kernel's launches with the same constants.

    Attributes:
        premises: about the launch.
        layouts: of each tensor argument, the first one preferred.
        known: what is a function of other symbols.
        shared: arguments that may lie in the same storage, in pairs.
    """

    premises: tuple[Premise, ...]
    layouts: Mapping[str, tuple[Layout, ...]]
    known: Mapping[Atom, Poly]
    shared: frozenset[tuple[str, str]]

    def below(self, limit: int) -> "Relations":
        """Return the relations of launches whose integers and tensors are all small.

        Args:
            limit: that no integer argument, size, stride and span exceeds.
        """
        atoms = [a for p in self.premises for a in atoms_in(p.holds)]
        integers = [
            a for a in dict.fromkeys(atoms) if a.kind == SYMBOL and a not in _AXES
        ]
        small = all_of(
            part for a in integers for part in (at_most(-limit, a), at_most(a, limit))
        )
        spans = all_of(
            at_most(layouts[0].span, limit) for layouts in self.layouts.values()
        )
        text = f"no argument, size, stride or tensor's extent exceeds {limit:,}"
        made = Premise(all_of([small, spans]), text)
        if made in self.premises:
            return self
        return replace(self, premises=(*self.premises, made))

    def broken_by(self, launch: Launch, *, partly: bool = False) -> Premise | None:
        """Return the first premise that a launch breaks, if any.

        Args:
            launch: the launch.
            partly: whether not all is known of it: what cannot be told holds.
        """
        values = Valuation(quantities(launch))
        for premise in self.premises:
            try:
                if not values.cond(premise.holds):
                    return premise
            except UnknownValueError:
                if not partly:
                    return premise
        return None


def within_grid(axis: int) -> Cond:
    """Return that a grid has as many programs along an axis as one may have."""
    most = 2**31 - 1 if axis == 0 else 65535
    return all_of([at_most(1, grid(axis)), at_most(grid(axis), most)])


def quantities(launch: Launch) -> dict[Atom, int]:
    """Return the integers of a launch by their symbols."""
    made: dict[str, int] = {f"grid.{a}": n for a, n in enumerate(launch.grid)}
    for name, argument in launch.arguments.items():
        match argument:
            case IntArgument():
                made[name] = argument.value
            case ConstArgument() if argument.number is not None:
                made[name] = argument.number
            case TensorArgument():
                made[f"{name}.numel"] = argument.numel
                made[f"{name}.distinct"] = int(argument.distinct)
                if argument.before != UNKNOWN:
                    made[f"{name}.before"] = argument.before
                    made[f"{name}.after"] = argument.after
                if argument.below is not None:
                    made[f"{name}.below"] = argument.below
                if argument.ignored is not None:
                    made[f"{name}.ignored"] = argument.ignored
                for d, (n, s) in enumerate(
                    zip(argument.shape, argument.strides, strict=True)
                ):
                    made[f"{name}.size({d})"] = n
                    made[f"{name}.stride({d})"] = s
    return {symbol(name): value for name, value in made.items()}


def cdiv(left: Poly, right: Poly) -> Poly:
    """Return left / right, rounded up, for positive numbers."""
    return quotient(left + right - 1, right)
