"""The contract language, the operators and the binding of kernels."""

from kfuzz.contracts.binding import BoundKernel, kernel
from kfuzz.contracts.language import Contract, ContractClass
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import atomic, blocked, splitk

__all__ = [
    "BoundKernel",
    "Contract",
    "ContractClass",
    "Operator",
    "atomic",
    "blocked",
    "kernel",
    "splitk",
]
