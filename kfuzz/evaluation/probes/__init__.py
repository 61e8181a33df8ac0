"""The probes, a file for each kind; adding the file adds its steps."""

from functools import cache
from importlib import import_module
from itertools import groupby
from pkgutil import iter_modules

from kfuzz.evaluation.diagnosis import Step


@cache
def further_steps() -> tuple[tuple[Step, ...], ...]:
    """Return what a case that conforms is put to, in groups, by the steps' places.

    Raises:
        ValueError: if two steps have one place.
    """
    found: dict[tuple[int, int], Step] = {}
    for file in iter_modules(__path__):
        for made in vars(import_module(f"{__name__}.{file.name}")).values():
            if not isinstance(made, Step) or made.place is None:
                continue
            if found.setdefault(made.place, made) is not made:
                raise ValueError(f"two steps have the place {made.place}")
    groups = groupby(sorted(found), key=lambda place: place[0])
    return tuple(tuple(found[place] for place in group) for _, group in groups)
