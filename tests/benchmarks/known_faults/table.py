"""The entries: faults of Liger-Kernel and of flash-linear-attention.

A version is faulty where its wheel lacks the lines of the fix and fixed where it has
them; both were looked at. flash-linear-attention put its kernels into `fla-core` with
0.3.2.
"""

from typing import Final

from tests.benchmarks.known_faults.fla_entries import FLA
from tests.benchmarks.known_faults.liger_entries import LIGER

ENTRIES: Final = (*LIGER, *FLA)
