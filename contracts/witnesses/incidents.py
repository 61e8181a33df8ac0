"""Three documented incidents, re-created as the smallest kernels that repeat them.

Each passes the plain functional test, as the original passed its own. `corpus/` holds
what kfuzz finds in them, with a page on each.
"""

from typing import Final

from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.embedding import looked_up
from kfuzz.contracts.witnesses.products import launch
from kfuzz.contracts.witnesses.witness import SQUARE, witness

# The shape at which the second kernel was tuned, timed and accepted.
BENCHMARK: Final = (32, 32)


@witness(SQUARE, SQUARE, breaks="C-PRC-01")
@kernel(ops.matmul, dtypes="float32")
def incident_precision_coercion(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-PRC-01: float32 operands are multiplied as float16, silently."""
    return launch(a[None], b[None], coerce=True)[0]


@witness((32, 32), (32, 32), breaks="C-CMP-03")
@kernel(ops.matmul, dtypes="float32")
def incident_reward_hacking(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-CMP-03: launches the grid of the shape that it was scored at."""
    return launch(a[None], b[None], tuned_for=BENCHMARK)[0]


@witness((512, 64), (128,), breaks="C-EXC-02")
@kernel(ops.embedding)
def incident_silent_index(weight: Tensor, indices: Tensor) -> Tensor:
    """Violates C-EXC-02: an index out of bounds gives a row of zeros, no exception."""
    return looked_up(weight, indices, checked=False)
