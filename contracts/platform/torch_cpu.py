"""Torch's own kernels as declared for the CPU; `DEFECTS.md` lists what is found."""

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.platform.catalogue import kernels

for made in kernels("cpu", torch.__version__):
    globals()[made.name] = kernel(made.operator, name=made.name, **made.claims)(
        made.function
    )
