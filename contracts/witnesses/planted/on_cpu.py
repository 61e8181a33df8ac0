"""The faults as planted on the CPU, bound at module level as targets are."""

from kfuzz.contracts import kernel
from kfuzz.contracts.witnesses.planted.catalogue import bound_on

PLANTED, _KERNELS, WITNESSES = bound_on("cpu")
for _name, _base in _KERNELS.items():
    kernel(_base.operator, name=_name, **_base.claims)(_base.function)
