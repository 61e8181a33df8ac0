"""Triton's interpreter on the CPU."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kfuzz.core.budget import SizeBudget
from kfuzz.execution.device.cpu import CPU, Cpu


class Interpreted(Cpu):
    """Triton's interpreter: Triton kernels run as Python, program by program."""

    name = "interpret"
    place = "in Triton's interpreter"
    # Each address is checked instead of what lies beside an argument.
    has = replace(CPU.has, native=False, fences=False)
    # 64 programs, about 1 ms each, some 10 of attention.
    limits = replace(
        CPU.limits,
        sizes=SizeBudget(elements=1 << 16, rows=64, span=1 << 38, tall=1100),
        # A program takes a millisecond, and every call is watched by itself: batches
        # would gain 1.1 to 1.2 only.
        batches=None,
        judged_elements=1 << 12,
        terms=64,
        pairs=4096,
        rows=16,
    )
    preload = (*CPU.preload, "kfuzz.execution.interpreter.preloaded:for_interpret")
    # Triton reads it when it is imported.
    environment: Mapping[str, str] = {"TRITON_INTERPRET": "1"}
    without_triton = "cpu"


INTERPRET: Final = Interpreted()
