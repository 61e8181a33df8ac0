"""The contract classes, one file each; adding the file adds the class.

One failing case gives one finding, under the first class that claims it in the order
of their ranks.
"""

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from kfuzz.contracts.language import ContractClass


def _discovered() -> tuple[ContractClass, ...]:
    """Return the classes of this folder's files by rank.

    Raises:
        ValueError: if two have the same rank, or an id is not its file's name.
    """
    by_rank: dict[int, ContractClass] = {}
    for file in iter_modules(__path__):
        if not re.fullmatch(r"[a-z]_[a-z]{3}_\d\d", file.name):
            continue
        made: ContractClass = import_module(f"{__name__}.{file.name}").CLASS
        if made.id != file.name.upper().replace("_", "-"):
            raise ValueError(f"{file.name}.py holds the class {made.id}")
        other = by_rank.setdefault(made.rank, made)
        if other is not made:
            raise ValueError(f"{other.id} and {made.id} have one rank, {made.rank}")
    return tuple(by_rank[rank] for rank in sorted(by_rank))


ATTRIBUTION: Final = _discovered()
"""The classes, in the order in which a failure is attributed."""

CLASSES: Final = {c.id: c for c in ATTRIBUTION}
