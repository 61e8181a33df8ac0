"""The contract classes; what a module of this folder defines is found.

One failing case gives one finding, under the first class that claims it in the order
of their ranks.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from kfuzz.contracts.language import ContractClass


def _discovered() -> tuple[ContractClass, ...]:
    """Return the classes of this folder's modules by rank.

    Raises:
        ValueError: if two have the same rank.
    """
    by_rank: dict[int, ContractClass] = {}
    for module in iter_modules(__path__):
        for made in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(made, ContractClass):
                other = by_rank.setdefault(made.rank, made)
                if other is not made:
                    text = f"{other.id} and {made.id} have one rank, {made.rank}"
                    raise ValueError(text)
    return tuple(by_rank[rank] for rank in sorted(by_rank))


ATTRIBUTION: Final = _discovered()
"""The classes, in the order in which a failure is attributed."""

CLASSES: Final = {c.id: c for c in ATTRIBUTION}

LATER: Final = frozenset(kind for c in ATTRIBUTION for kind in c.later_kinds)
"""Kinds that one call does not show."""
