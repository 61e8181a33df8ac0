"""The faults as planted on CUDA, bound at module level as targets are."""

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.witnesses.planted.catalogue import (
    conforming,
    declared,
    in_libraries,
    planted,
)

PLANTED = tuple(planted("cuda", torch.__version__))
CONFORMING = {
    **declared("cuda", torch.__version__),
    **in_libraries("cuda", torch.__version__),
}
WITNESSES = [
    *(p.witness("planted.on_cuda") for p in PLANTED if p.base is not None),
    *(conforming(name, base, "planted.on_cuda") for name, base in CONFORMING.items()),
]

for _made in PLANTED:
    if _made.base is not None:
        kernel(_made.base.operator, name=_made.name, **_made.base.claims)(
            _made.base.function
        )
for _name, _base in CONFORMING.items():
    kernel(_base.operator, name=_name, **_base.claims)(_base.function)
