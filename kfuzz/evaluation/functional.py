"""The plain functional test that all witnesses pass."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.evaluation.calling import as_argument
from kfuzz.execution.calls.tuners import held
from kfuzz.execution.interpreter.watch import watch
from kfuzz.numerics.domains import fitted
from kfuzz.strategies.parameters import IndexParameter, TensorParameter

# The plain functional test: torch.allclose, rtol = atol, five inputs.
TOLERANCE: Final = 1e-2
INPUTS: Final = 5


def passes_functional(witness: Witness, *, device: str = "cpu") -> bool:
    """Whether a witness passes the test that people write for a kernel.

    `torch.allclose` with rtol = atol = 1e-2 against torch in float64, on five
    random inputs at its one friendly shape: normal, of integers uniform.

    Args:
        witness: its kernel, at which shapes and in which dtype.
        device: where it runs; Triton kernels need a GPU or the interpreter.
    """
    kernel = witness.load()
    operator = kernel.operator
    dtype = getattr(torch, witness.dtype)
    scalars = {name: p.default for name, p in operator.scalars.items()}
    taken = {name: as_argument(scalars[name]) for name in kernel.arguments.scalars}
    parameters = [operator.tensors[name] for name in kernel.arguments.tensors]
    oracle = operator.oracle_on(kernel.arguments.tensors)
    sizes = {
        axis: n
        for p, shape in zip(parameters, witness.shapes, strict=True)
        for axis, n in p.sizes(shape).items()
    }
    # Of what integer scalars and dimensions indices stay below.
    bounds = {n: v for n, v in scalars.items() if type(v) is int} | sizes
    for seed in range(INPUTS):
        random = torch.Generator().manual_seed(seed)
        inputs = [
            _drawn(p, shape, dtype, bounds, random).to(device)
            for p, shape in zip(parameters, witness.shapes, strict=True)
        ]
        for i, parameter in enumerate(parameters):
            if parameter.role == "variance":
                inputs[i] = inputs[i].abs()
        exact = [
            x if x.dtype is torch.bool or isinstance(p, IndexParameter) else x.double()
            for p, x in zip(parameters, inputs, strict=True)
        ]
        expected = oracle(*exact, **scalars)
        # Where Triton interprets, with the bits of compiled Triton. Each of several
        # configurations takes its turn.
        own = kernel.declaration.config(seed)
        if isinstance(expected, Tensor):
            expected = (expected,)
        given = [torch.empty_like(y, dtype=dtype) for y in expected]
        given = given[: len(kernel.arguments.destinations)]
        with watch(config=seed):
            returned = held(kernel.on, kernel.tuners)(*inputs, *given, **taken, **own)
        if given:
            returned = given
        elif returned is None:
            changed = dict(zip(kernel.arguments.tensors, inputs, strict=True))
            returned = [changed[name] for name in kernel.declaration.inplace]
        elif isinstance(returned, Tensor):
            returned = (returned,)
        if not all(map(_close, returned, expected)):
            return False
    return True


def _drawn(
    parameter: TensorParameter,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    bounds: Mapping[str, int],
    random: torch.Generator,
) -> Tensor:
    """Return an ordinary argument: normal, uniform where it holds integers."""
    own = getattr(torch, parameter.dtype) if parameter.dtype else dtype
    bound = 0
    if isinstance(parameter, IndexParameter):
        bound = bounds[parameter.below]
        drawn = torch.randint(bound, shape, generator=random)
    elif parameter.kind == "float":
        drawn = torch.randn(shape, generator=random).to(own)
    else:
        least, most = (0, 1) if own is torch.bool else (-100, 100)
        drawn = torch.randint(least, most + 1, shape, generator=random)
        drawn = (drawn.abs() if parameter.kind == "uint" else drawn).to(own)
    return fitted(drawn, parameter.domain, bound, len(shape))


def _close(y: Tensor, wanted: Tensor) -> bool:
    """Whether a result passes; integers must be equal."""
    tolerance = TOLERANCE if wanted.is_floating_point() else 0.0
    y, wanted = y.to(torch.float64), wanted.to(torch.float64)
    return y.shape == wanted.shape and torch.allclose(
        y, wanted, rtol=tolerance, atol=tolerance, equal_nan=True
    )
