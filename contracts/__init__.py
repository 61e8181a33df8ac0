"""The contract language, the operators and the binding of kernels."""

from kfuzz.contracts.binding import BoundKernel as BoundKernel
from kfuzz.contracts.binding import kernel as kernel
from kfuzz.contracts.language import Contract as Contract
from kfuzz.contracts.language import ContractClass as ContractClass
from kfuzz.contracts.operator import Operator as Operator
from kfuzz.core.declaration import atomic as atomic
from kfuzz.core.declaration import blocked as blocked
from kfuzz.core.declaration import splitk as splitk
