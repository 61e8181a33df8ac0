"""Cases of many tiny rows, where every program costs much time."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Final

from hypothesis import strategies as st

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import Case
from kfuzz.strategies.large import grown

# One case in so many.
_SHARE: Final = 100
# More rows than GPUs have processors, and than what grids are usually limited to.
_ROWS: Final = (133, 150, 200, 133, 160, 264, 300, 200, 133, 530, 150, 1030)
# Sizes that a shape class may ask for are multiples of one of these.
_MULTIPLES: Final = (1, 8, 64)
# What they are made of: the smallest that a declaration leaves.
_SMALL: Final = (SizeBudget(32, 4), SizeBudget(256, 16), SizeBudget(4096, 64))


def with_tall_cases(
    usual: st.SearchStrategy[Case],
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
    budget: SizeBudget,
    *,
    rows: int,
    outer: Callable[[Case], Mapping[str, int]],
    admits: Callable[[Case], bool],
) -> st.SearchStrategy[Case]:
    """Return a strategy whose cases have, now and then, many rows of few elements.

    They are contiguous and within the elements of the budget. A usual case settles
    whether one stands in its place.

    Args:
        usual: the kernel's usual cases.
        within: its cases within a budget.
        budget: the usual one.
        rows: how many they have at most.
        outer: the sizes of a case's dimensions that make its rows.
        admits: whether a case lies in the kernel's domain.
    """
    small = _smallest(within)
    if small is None:
        return usual

    @st.composite
    def draw_case(draw: st.DrawFn) -> Case:
        case = draw(usual)
        # Not of the seed alone, which Hypothesis gives to many cases.
        chance = generator(repr(case), Purpose.TALL)
        if chance.randrange(_SHARE):
            return case
        wanted = min(chance.choice(_ROWS), rows)
        made = _tall(draw(small), wanted, chance, outer, admits)
        if made is None or any(
            spec.numel > budget.elements for spec in made.tensors.values()
        ):
            return case
        return made

    return draw_case()


def _smallest(
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
) -> st.SearchStrategy[Case] | None:
    """Return the strategy of the first small budget that leaves a shape, if any."""
    for budget in _SMALL:
        try:
            return within(budget)
        except BindingError:
            continue
    return None


def _tall(
    case: Case,
    rows: int,
    chance: random.Random,
    outer: Callable[[Case], Mapping[str, int]],
    admits: Callable[[Case], bool],
) -> Case | None:
    """Return a case with one of its outer dimensions made long; None if none can be."""
    sizes = dict(outer(case))
    if not all(case.dims.values()):
        return None
    for axis in chance.sample(sorted(sizes), len(sizes)):
        rest = math.prod(n for name, n in sizes.items() if name != axis)
        least = -(-rows // rest)
        for multiple in _MULTIPLES:
            made = grown(case, axis, -(-least // multiple) * multiple)
            if admits(made):
                return made
    return None
