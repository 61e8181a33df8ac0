"""Which launches stand for many, and what of them is a result."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from kfuzz.execution.launches.launch import TensorArgument
from kfuzz.prove.groups import (
    Constants,
    Key,
    Made,
)
from kfuzz.prove.relations import quantities
from kfuzz.strategies.layouts import layout_name

LAUNCHES: Final = 3
"""Single launches of each variant for which what is not proved for all is tried."""


def spread(made: Sequence[Made]) -> list[Made]:
    """Return a few launches: a small one, a middling one, a large one."""
    last = len(made) - 1
    places = dict.fromkeys(last * i // (LAUNCHES - 1) for i in range(LAUNCHES))
    return [made[place] for place in places]


def outputs(made: Iterable[Made]) -> list[str]:
    """Return the arguments that hold results in some launches, and held nothing."""
    return list(
        dict.fromkeys(
            name
            for each in made
            for name, argument in each.launch.arguments.items()
            if isinstance(argument, TensorArgument)
            if argument.output and not argument.filled
        )
    )


def whole(argument: TensorArgument) -> bool:
    """Whether a tensor is all of its storage that is a result's."""
    return argument.before == 0 and argument.after <= argument.span


def varied(
    launches: Iterable[tuple[Made, tuple[Key, Constants]]],
) -> Iterator[tuple[Made, tuple[Key, Constants]]]:
    """Yield launches of different numbers, of each kind of layouts small ones first."""
    kinds: dict[tuple[str, ...], list[tuple[Made, tuple[Key, Constants]]]] = {}
    seen = set()
    for pair in sorted(launches, key=lambda p: (p[0].case.elements, p[0].call)):
        made, place = pair
        same = place, frozenset(quantities(made.launch).items())
        if same not in seen:
            seen.add(same)
            layouts = tuple(map(layout_name, made.case.tensors.values()))
            kinds.setdefault(layouts, []).append(pair)
    for row in zip_longest(*kinds.values()):
        yield from (pair for pair in row if pair is not None)


def described(made: Made) -> str:
    """Return a launch in words: its kernel, and the shapes of the case."""
    shapes = ", ".join(
        f"{name}{list(spec.shape)}" for name, spec in made.case.tensors.items()
    )
    return f"{made.launch.kernel} on {shapes}"
