"""What a case says besides its values: poison, edge, configuration, output layout.

All are drawn with the case, each from a stream of its own, and kept in its recipe.
Recipes of earlier versions leave them open, and so do some that are no draws: their
seed decides by the rule of that time, so that what is stored replays alike.
"""

from dataclasses import replace
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.random_streams import Purpose, stream
from kfuzz.core.recipe import NOWHERE, Case, Edge, Poison

CONTIGUOUS: Final = "contiguous"

_SIDES: Final = (Edge("start"), Edge("end"), NOWHERE)
# Up to ten configurations share these evenly.
_CONFIGURATIONS: Final = 2520
_LAYOUTS: Final[dict[str, tuple[str, ...]]] = {
    "any": ("padded", "transposed", "stepped", "offset"),
    "inner_contiguous": ("padded", "offset"),
    "contiguous": (),
}


def _output_layouts(declaration: Declaration) -> tuple[str, ...]:
    """Return the layouts that a kernel's outputs may have; half are contiguous."""
    kinds = _LAYOUTS[declaration.layouts]
    return (CONTIGUOUS,) * max(1, len(kinds)) + kinds


def with_surroundings(case: Case, declaration: Declaration) -> Case:
    """Return a drawn case with poison, edge, configuration and output layout drawn.

    They know nothing of one another.
    """
    seed, layout = case.seed, None
    if declaration.out:
        layouts = _output_layouts(declaration)
        layout = layouts[stream(seed, Purpose.OUTPUT_LAYOUT) % len(layouts)]
    return replace(
        case,
        poison=str(list(Poison)[stream(seed, Purpose.POISON) % 2]),
        edge=drawn_edge(seed),
        config=stream(seed, Purpose.CONFIGURATION) % _CONFIGURATIONS,
        layout=layout,
    )


def drawn_edge(seed: int) -> Edge:
    """Return where a case of a seed lies beside pages: "start", "end" or nowhere.

    Nowhere too: guard zones see writes that a page far behind them does not, and
    alignments are then exact.
    """
    return _SIDES[stream(seed, Purpose.EDGE) % len(_SIDES)]


def settled(case: Case, declaration: Declaration) -> Case:
    """Return a case with nothing left open."""
    return replace(
        case,
        poison=str(poison_of(case)),
        edge=edge_of(case),
        config=config_of(case),
        layout=layout_of(case, declaration) if declaration.out else None,
    )


# What follows decides by the seed only where a recipe leaves something open: it was
# stored by a version that kept no such field.


def poison_of(case: Case) -> Poison:
    """Return the poison of a case."""
    if case.poison is not None:
        return Poison(case.poison)
    return Poison.FINITE if case.seed % 2 else Poison.NAN


def config_of(case: Case) -> int:
    """Return which configuration runs, modulo their number."""
    return case.seed // 6 % _CONFIGURATIONS if case.config is None else case.config


def edge_of(case: Case) -> Edge | None:
    """Return where a case lies beside pages; pinned cases only where they say so."""
    if case.edge is not None or case.pinned:
        return case.edge
    return _SIDES[case.seed // 2 % 3]


def layout_of(case: Case, declaration: Declaration) -> str:
    """Return the layout of the outputs; of pinned cases contiguous by default."""
    if case.layout is not None or case.pinned:
        return case.layout or CONTIGUOUS
    every = _output_layouts(declaration)
    return every[case.seed // 15120 % len(every)]
