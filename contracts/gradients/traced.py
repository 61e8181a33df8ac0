"""Gradients of operators for which there is no rule: autograd's own, step by step.

The oracle and its derivative are traced as one graph of simple operators, which runs
under the running-error shadow like any reference. Whatever a kernel keeps from the
forward call, or a chain of library calls stores between its steps, is one of these
results in the output's format: that rounding is admitted at each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.bounds import defined, in_any_order


@dataclass(frozen=True)
class TracedBound:
    """The error model of gradients by autograd.

    Attributes:
        name: the gradients' name, for messages.
        product: the oracle of the gradients, see `vector_jacobian`.
        wanted: the arguments whose gradients are asked for, in order.
    """

    name: str
    product: "Callable[..., tuple[nm.Tensor, ...]]"
    wanted: tuple[str, ...]

    def __call__(self, problem: "nm.Problem") -> "nm.Accepted":
        """Return the acceptance of each gradient of one member, by output."""
        from kfuzz.numerics.shadow import shadowed

        scalars = dict(problem.scalars)
        first = [t[0] for t in problem.tensors.values()]
        graph = traced(partial(self.product, **scalars), first)

        def run(*tensors: "nm.Tensor", **_: Any) -> Any:
            return tuple(graph(*tensors))

        claims = replace(problem.declaration, intermediates="output")
        wide = replace(problem, declaration=claims)
        found = shadowed(run, wide, name=self.name, kinks=True)
        pairs = zip(self.wanted, found, strict=True)
        return {
            f"d{name}": defined(problem, in_any_order(problem, made))
            for name, made in pairs
        }


def traced(
    function: "Callable[..., Any]", tensors: "Sequence[nm.Tensor]"
) -> "Callable[..., Any]":
    """Return a function as a graph of operators that are not defined by others.

    Raises:
        Exception: whatever torch raises where it cannot be traced.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    made: Callable[..., Any] = make_fx(
        function, decomposition_table=_decompositions(), tracing_mode="real"
    )(*tensors)
    return made


@cache
def _decompositions() -> Any:
    from torch._decomp import core_aten_decompositions

    return core_aten_decompositions()


def vector_jacobian(
    oracle: "Callable[..., Any]",
    *,
    arguments: int,
    places: Sequence[int],
    wanted: Sequence[int],
) -> "Callable[..., tuple[nm.Tensor, ...]]":
    """Return the vector-Jacobian product of an oracle, by autograd.

    Args:
        oracle: of tensors and, by keyword, scalars.
        arguments: how many tensors it takes; gradients of outputs follow them.
        places: which of its results they belong to.
        wanted: positions of the arguments whose gradients are returned.
    """
    import torch

    def product(*tensors: "nm.Tensor", **scalars: Any) -> "tuple[nm.Tensor, ...]":
        given, grads = list(tensors[:arguments]), tensors[arguments:]
        with torch.enable_grad():
            for i in wanted:
                given[i] = given[i].detach().requires_grad_()
            returned = oracle(*given, **scalars)
            results = returned if isinstance(returned, tuple | list) else (returned,)
            pairs = [
                (results[place], grad)
                for place, grad in zip(places, grads, strict=True)
                if results[place].requires_grad
            ]
            leaves = [given[i] for i in wanted]
            found: Sequence[nm.Tensor | None] = [None] * len(leaves)
            if pairs:
                made, into = zip(*pairs, strict=True)
                found = torch.autograd.grad(made, leaves, into, allow_unused=True)
        return tuple(
            torch.zeros_like(x) if grad is None else grad
            for x, grad in zip(leaves, found, strict=True)
        )

    return product
