"""Gradients of operators for which there is no rule: autograd's own, step by step.

The oracle and its derivative run under the running-error shadow like any reference, as
operators that are not defined by others. Whatever a kernel keeps from the forward call,
or a chain of library calls stores between its steps, is one of these results in the
output's format: that rounding is admitted at each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.bounds import defined, in_any_order


@dataclass(frozen=True)
class AutogradBound:
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

        def run(*tensors: "nm.Tensor", **scalars: Any) -> Any:
            # Nothing is kept from call to call: what an oracle does may follow values.
            with _decomposed()():
                return self.product(*tensors, **scalars)

        claims = replace(problem.declaration, intermediates="output")
        wide = replace(problem, declaration=claims)
        found = shadowed(run, wide, name=self.name, kinks=True)
        pairs = zip(self.wanted, found, strict=True)
        return {
            f"d{name}": defined(problem, in_any_order(problem, made))
            for name, made in pairs
        }


@cache
def _decomposed() -> Any:
    """Return the mode in which operators that others define run as those."""
    from torch._decomp import core_aten_decompositions

    from kfuzz.numerics.float64 import Uncompiled

    table = core_aten_decompositions()

    class Decomposed(Uncompiled):  # type: ignore[no-untyped-call]
        """Above the shadow, which sees what autograd's formulas consist of."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            with self:
                if func in table:
                    return table[func](*args, **kwargs)
                made = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made is NotImplemented else made

    return Decomposed


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

        def results(*leaves: "nm.Tensor") -> "tuple[nm.Tensor, ...]":
            for i, leaf in zip(wanted, leaves, strict=True):
                given[i] = leaf
            returned = oracle(*given, **scalars)
            every = returned if isinstance(returned, tuple | list) else (returned,)
            return tuple(every[place] for place in places)

        leaves = [given[i] for i in wanted]
        if any(map(torch._C._functorch.is_batchedtensor, tensors)):
            # Under torch.vmap no tensor can be made to require its gradient.
            pullback: Any = torch.func.vjp(results, *leaves)[1]
            return tuple(pullback(tuple(grads), create_graph=False))
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in leaves]
            made = results(*leaves)
            pairs = [p for p in zip(made, grads, strict=True) if p[0].requires_grad]
            found: Sequence[nm.Tensor | None] = [None] * len(leaves)
            if pairs:
                ends, into = zip(*pairs, strict=True)
                found = torch.autograd.grad(ends, leaves, into, allow_unused=True)
        return tuple(
            torch.zeros_like(x) if grad is None else grad
            for x, grad in zip(leaves, found, strict=True)
        )

    return product
