"""Draws cases of the operators of this package, as a test or as a script.

As a script it prints a digest of the cases: tests compare two interpreters.
"""

import sys
from hashlib import sha256

from hypothesis import HealthCheck, Phase, given, seed, settings, target

from kfuzz import strategies as ks
from kfuzz.core.declaration import Declaration
from kfuzz.strategies.cases import cases
from tests.helpers.budgets import SIZE_BUDGETS

SOFTMAX = ({"x": ks.tensors("*"), "dim": ks.dim(of="x")}, {})
AMAX = (SOFTMAX[0], {"empty_reduction": False})
RELU = ({"x": ks.tensors("*")}, {"ranks": range(5)})
LAYER_NORM = (
    {
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 0.1)),
    },
    {"reduced": "N", "empty_reduction": False},
)
MATMUL = ({"a": ks.tensors("M K"), "b": ks.tensors("K N")}, {"reduced": "K"})
OPERATORS = {
    "softmax": SOFTMAX,
    "amax": AMAX,
    "relu": RELU,
    "layer_norm": LAYER_NORM,
    "matmul": MATMUL,
}


def strategy(operator, *, backend="cpu", **rest):
    """Return the strategy of an operator under a declaration's claims."""
    parameters, extra = OPERATORS[operator]
    extra = dict(extra)
    for name in ("families", "omitted"):
        if name in rest:
            extra[name] = rest.pop(name)
    return cases(
        parameters,
        declaration=Declaration().declare("test", **rest),
        budget=SIZE_BUDGETS[backend],
        **extra,
    )


def drawn(
    operator, count, *, from_seed=1, phases=(Phase.generate, Phase.target), **rest
):
    """Return `count` cases, drawn as a campaign draws them."""
    found = []

    @seed(from_seed)
    @settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy(operator, **rest))
    def record(case):
        found.append(case)
        target(float(case.elements % 97))

    record()
    return found


if __name__ == "__main__":
    text = "\n".join(
        repr(drawn(op, 60, from_seed=int(sys.argv[1]))) for op in OPERATORS
    )
    sys.stdout.write(sha256(text.encode()).hexdigest())
