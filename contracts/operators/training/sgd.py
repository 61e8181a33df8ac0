"""sgd(param, grad, momentum_buffer, lr, ...): one step with momentum."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    param: Any,
    grad: Any,
    momentum_buffer: Any,
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
) -> Any:
    """(param - lr d, b'), b' = momentum b + (1 - dampening) g, g = grad + wd param.

    d is b', or g + momentum b' (Nesterov).
    """
    g = grad + weight_decay * param if weight_decay else grad
    buffer = momentum * momentum_buffer + (1 - dampening) * g
    change = g + momentum * buffer if nesterov else buffer
    return param - lr * change, buffer


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return the shadow's acceptances, undecided beside an infinity without a NaN.

    Without weight decay some kernels multiply the parameter by 0 and others do not.
    """
    import torch

    param, buffer = nm.shadowed(reference, problem, name="sgd")
    param = nm.undecided_at_infinities(problem, param)
    if problem.number("weight_decay"):
        buffer = nm.undecided_at_infinities(problem, buffer)
    else:
        given = problem.tensors["param"]
        buffer = nm.undecided_at_infinities(problem, buffer, "grad", "momentum_buffer")
        unclear = buffer.undecidable | ~torch.isfinite(given)
        buffer = replace(buffer, undecidable=unclear)
    return {"param": param, "momentum_buffer": buffer}


sgd = Operator(
    "sgd",
    inputs={
        "param": ks.tensors("*"),
        "grad": ks.tensors("*"),
        "momentum_buffer": ks.tensors("*"),
        "lr": ks.scalar(1e-3, domain=(1.0, 0.1)),
        "momentum": ks.scalar(0.9, domain=(0.5, 0.99)),
        "dampening": ks.scalar(0.0, domain=(0.1,)),
        "weight_decay": ks.scalar(0.0, domain=(0.01, 0.1)),
        "nesterov": ks.scalar(False, domain=(True,)),
    },
    oracle=reference,
    error_model=accept,
    outputs=("param", "momentum_buffer"),
    ranks=range(5),
    homogeneous={"param grad momentum_buffer": 1},
    **bounded("sgd", Structure.INTERVAL),
)
