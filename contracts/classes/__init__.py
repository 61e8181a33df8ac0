"""The contract classes, in the order in which a failure is attributed.

One failing case gives one finding, under the first class that claims it.
"""

from typing import Final

from kfuzz.contracts.classes import (
    c_cmp_01,
    c_cmp_02,
    c_cmp_03,
    c_exc_01,
    c_exc_02,
    c_ord_01,
    c_ord_02,
    c_ord_03,
    c_prc_01,
    c_prc_02,
    c_prc_03,
    c_prc_04,
    k_grd_01,
    k_liv_01,
    k_mem_01,
    k_mem_02,
    k_mem_03,
    k_mem_04,
    k_met_01,
    k_own_01,
    k_ref_01,
    k_val_01,
)
from kfuzz.contracts.language import ContractClass

ATTRIBUTION: Final[tuple[ContractClass, ...]] = (
    k_liv_01.CLASS,
    k_mem_01.CLASS,
    k_met_01.CLASS,
    k_mem_03.CLASS,
    k_mem_04.CLASS,
    c_ord_02.CLASS,
    c_ord_03.CLASS,
    k_ref_01.CLASS,
    k_mem_02.CLASS,
    k_own_01.CLASS,
    c_cmp_02.CLASS,
    c_exc_02.CLASS,
    c_exc_01.CLASS,
    c_prc_02.CLASS,
    c_prc_03.CLASS,
    c_prc_01.CLASS,
    c_cmp_03.CLASS,
    c_cmp_01.CLASS,
    k_val_01.CLASS,
    c_prc_04.CLASS,
    c_ord_01.CLASS,
    k_grd_01.CLASS,
)

# Judged on bytes and metadata alone: a wrong value says nothing about them.
FREE_OF_VALUES: Final = frozenset(
    {
        "K-LIV-01",
        "K-MEM-01",
        "K-MET-01",
        "K-MEM-03",
        "K-MEM-04",
        "C-ORD-02",
        "K-OWN-01",
    }
)

# Judged by probes that some cases or some kernels have: elsewhere they say nothing.
BY_OCCASION: Final = frozenset({"C-CMP-02", "C-ORD-01", "C-ORD-03", "C-PRC-04"})

# Judged where an index is out of bounds, or a number not finite, and nothing is
# promised for it.
BEYOND_BOUNDS: Final = frozenset(
    {"K-LIV-01", "K-MEM-01", "K-MEM-03", "C-EXC-01", "C-EXC-02"}
)

CLASSES: Final = {c.id: c for c in ATTRIBUTION}
