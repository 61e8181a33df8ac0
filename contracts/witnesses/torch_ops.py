"""Torch's own kernels of the CPU, in so far as they conform.

Bound as `kfuzz.contracts.platform` declares them, but for inputs that show a listed
defect: those are left undecided.
"""

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.platform.catalogue import kernels

for made in kernels("cpu", torch.__version__):
    globals()[made.name] = kernel(made.operator, name=made.name, **made.excused)(
        made.function
    )
