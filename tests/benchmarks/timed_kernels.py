"""Correct kernels, bound to the sizes at which `throughput.py` times them."""

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.witnesses.layer_norm import triton_layer_norm
from kfuzz.contracts.witnesses.matmul import triton_matmul
from kfuzz.contracts.witnesses.softmax import triton_softmax

# Budgets bound M, the number of rows.
ROWS = "N >= 1 and N <= 512 and M >= 1"


def _square(least: int, most: int) -> str:
    bounds = (f"{n} >= {least} and {n} <= {most}" for n in ("M", "K", "N"))
    return " and ".join(bounds)


for bound, shapes in (
    (triton_softmax, {"rows": ROWS}),
    (triton_layer_norm, {"rows": ROWS}),
    (triton_matmul, {"64_to_512": _square(64, 512), "16_to_64": _square(16, 64)}),
):
    for label, shape_class in shapes.items():
        made = f"{bound.name}_{label}"
        globals()[made] = kernel(bound.operator, name=made, shape_class=shape_class)(
            bound.function
        )

torch_claims = {k.name: k for k in kernels("cpu", torch.__version__)}
for name, shape_class in (
    ("torch_softmax", ROWS),
    ("torch_layer_norm", ROWS),
    ("torch_matmul", _square(64, 512)),
):
    declared = torch_claims[name]
    globals()[f"{name}_timed"] = kernel(
        declared.operator,
        name=f"{name}_timed",
        **declared.claims,
        shape_class=shape_class,
    )(declared.function)
