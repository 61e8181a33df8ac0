"""The families of values, of integers, truth values and indices: one declaration each.

Each family exists because it exposes a class of faults that random normal data hides.
Strategies read from here what is drawn how often. `kfuzz.execution.values` makes the
values: of a floating family from the row of a table that its formula gives, on the host
(`formula`) and by a compiled kernel (`fused_fills`); of the others from an expression.
"""

from collections.abc import Mapping
from typing import Final

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.value_families.floating import FAMILIES, MIXED_KINDS
from kfuzz.core.value_families.integral import (
    BOOL_FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
)
from kfuzz.core.value_families.table import (
    COLUMNS,
    KEYS,
    REALS,
    SLOTS,
    Code,
    Column,
    Family,
    Row,
    infinity_bits,
    nan_bits,
)

__all__ = [
    "BOOL_FAMILIES", "COLUMNS", "COPIES", "FAMILIES", "INDEX_FAMILIES",
    "INTEGER_FAMILIES", "KEYS", "MIXED_KINDS", "REALS", "SLOTS", "STRETCHED", "Code",
    "Column", "Family", "Row", "families_of", "infinity_bits", "is_hostile", "nan_bits",
]  # fmt: skip

STRETCHED: Final = tuple(f.name for f in FAMILIES.values() if f.stretched)
COPIES: Final = frozenset(f.name for f in FAMILIES.values() if f.make is None)
"""Families that make an argument of another one."""


def is_hostile(family: str) -> bool:
    """Whether a family holds indices that are not below their bound."""
    return family in INDEX_FAMILIES and INDEX_FAMILIES[family].group == "hostile"


def families_of(dtype: str, below: str = "") -> tuple[str, Mapping[str, Family]]:
    """Return what kind of values an argument holds, and the families of it.

    Args:
        dtype: of the argument.
        below: for indices the dimension whose size they stay below.
    """
    if below:
        return "index", INDEX_FAMILIES
    match DTYPES[dtype].kind:
        case "bool":
            return "bool", BOOL_FAMILIES
        case "int" | "uint":
            return "integer", INTEGER_FAMILIES
        case _:
            return "value", FAMILIES
