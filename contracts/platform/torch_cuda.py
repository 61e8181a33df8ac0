"""Torch's own kernels as declared for NVIDIA's GPUs, under torch's default flags.

Kernels whose names end in a flag's setting set it for the call. `DEFECTS.md` lists
what is found.
"""

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.platform.catalogue import kernels

for made in kernels("cuda", torch.__version__):
    globals()[made.name] = kernel(made.operator, name=made.name, **made.claims)(
        made.function
    )
