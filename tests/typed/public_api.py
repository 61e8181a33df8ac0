"""What type checkers see of the public interface: mypy reads this, nothing runs it.

A line marked with an ignore must be an error: unused ignores are errors too.
"""

from typing import Any, assert_type

import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.finding import Finding


@kfuzz.kernel(ops.softmax, determinism="bitwise", dtypes=("float32", torch.float16))
def my_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Compute it as torch does."""
    return torch.softmax(x, dim)


def gemm(a: Tensor, b: Tensor) -> Tensor:
    """Compute it as torch does."""
    return a @ b


# The signature of the function stays, as a decorator and as a call.
assert_type(my_softmax(torch.ones(3)), Tensor)
assert_type(my_softmax(torch.ones(3), dim=0), Tensor)
my_softmax("x")  # type: ignore[arg-type]
my_softmax(torch.ones(3), axis=0)  # type: ignore[call-arg]

bound = kfuzz.kernel(ops.matmul, name="gemm_v2", accumulator="float32")(gemm)
assert_type(bound(torch.ones(2, 2), torch.ones(2, 2)), Tensor)
bound(torch.ones(2, 2))  # type: ignore[call-arg]
assert_type(bound.name, str)

# Declarations are typed keywords.
kfuzz.kernel(ops.relu, layouts="dense")  # type: ignore[arg-type]
kfuzz.kernel(ops.relu, layout="contiguous")  # type: ignore[call-arg]
kfuzz.kernel(ops.relu, alignment="16")  # type: ignore[arg-type]
kfuzz.kernel(torch.relu)  # type: ignore[arg-type]

# Whatever it is bound to, a kernel can be searched.
kernel: BoundKernel = my_softmax
found: list[Finding] = kfuzz.falsify(my_softmax, max_cases=10)
anything: BoundKernel[..., Any] = bound
