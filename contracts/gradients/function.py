"""Calls of an implementation and of autograd, as kernels of gradients.

The tensors that a case gives are taken as leaves where they lie, with their strides,
and so are the gradients of the outputs. Gradients are returned as a kernel's results.
"""

import functools
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Way(StrEnum):
    """A way of asking for the same gradients.

    Attributes:
        ALONE: one argument at a time requires a gradient.
        TWICE: two results of equal arguments in one graph; half of the sum.
        LATER: after another forward call on other data.
        AGAIN: a second time through a graph that is kept.
        OVERWRITTEN: after the results of the forward call were overwritten; where
            autograd refuses that, as it may, as without.
    """

    ALONE = "alone"
    TWICE = "twice"
    LATER = "later"
    AGAIN = "again"
    OVERWRITTEN = "overwritten"


class Backward:
    """The gradients of an implementation, as a callable.

    Attributes:
        forward: the implementation.
        tensors: names of the tensors that it takes, in order.
        wanted: the arguments whose gradients are returned.
        places: which of its results gradients are given for, in order.
        one_sided: the arguments whose sign means something.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        *,
        tensors: Sequence[str],
        wanted: Sequence[str],
        places: Sequence[int],
        one_sided: Sequence[str] = (),
    ) -> None:
        self.forward = forward
        self.tensors = tuple(tensors)
        self.wanted = tuple(wanted)
        self.places = tuple(places)
        self.one_sided = tuple(one_sided)
        functools.update_wrapper(self, forward, updated=())

    def __call__(self, *given: "Tensor", **scalars: Any) -> Any:
        """Return the gradients of one forward call.

        Args:
            given: the tensors, then the gradients of the outputs.
            scalars: the scalars and keywords of the implementation.
        """
        return self._alone(self.wanted, *given, **scalars)

    def asked(self, way: str, argument: str = "") -> Callable[..., Any]:
        """Return a callable that gives the same gradients in another way.

        Args:
            way: how, a `Way`.
            argument: the one that requires a gradient, for `ALONE`; gradients of the
                others are 0.
        """
        if way == Way.ALONE:
            return functools.partial(self._alone, (argument,))
        made: Callable[..., Any] = getattr(self, f"_{way}")  # named after the way
        return made

    def _alone(self, wanted: Sequence[str], *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, wanted)
        return self._returned(self._pulled(results, leaves, grads), leaves, given)

    def _twice(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        results = results + self._results(leaves, scalars)
        found = self._pulled(results, leaves, (*grads, *grads))
        halves = {n: None if g is None else g * 0.5 for n, g in found.items()}
        return self._returned(halves, leaves, given)

    def _later(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        named = zip(self.tensors, given, strict=False)
        others = [self._turned(name, x) for name, x in named]
        kept = self._results(self._leaves(others, self.wanted), scalars)
        found = self._pulled(results, leaves, grads)
        del kept  # alive until here: its memory is not the first call's
        return self._returned(found, leaves, given)

    def _turned(self, name: str, x: "Tensor") -> "Tensor":
        """Return other data for an argument: flipped, and negated where that may be."""
        other = x.flip(tuple(range(x.dim())))
        signed = x.is_floating_point() and name not in self.one_sided
        return -other if signed else other

    def _again(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        self._pulled(results, leaves, grads, keep=True)
        return self._returned(self._pulled(results, leaves, grads), leaves, given)

    def _overwritten(self, *given: "Tensor", **scalars: Any) -> Any:
        import torch

        leaves, results, grads = self._called(given, scalars, self.wanted)
        owned = {_memory(x) for x in given}
        try:
            with torch.no_grad():
                for y in results:
                    if y.is_floating_point() and _memory(y) not in owned:
                        y.fill_(2.0**10)
            found = self._pulled(results, leaves, grads)
        except RuntimeError:
            return self(*given, **scalars)
        return self._returned(found, leaves, given)

    def _called(
        self, given: "Sequence[Tensor]", scalars: dict[str, Any], wanted: Sequence[str]
    ) -> "tuple[dict[str, Tensor], tuple[Tensor, ...], Sequence[Tensor]]":
        """Return the leaves, the results of one forward call, and their gradients."""
        n = len(self.tensors)
        leaves = self._leaves(given[:n], wanted)
        return leaves, self._results(leaves, scalars), given[n:]

    def _leaves(
        self, arguments: "Sequence[Tensor]", wanted: Sequence[str]
    ) -> "dict[str, Tensor]":
        """Return views of the arguments, those wanted as leaves of a graph."""
        named = zip(self.tensors, arguments, strict=True)
        return {name: x.detach().requires_grad_(name in wanted) for name, x in named}

    def _results(
        self, leaves: "dict[str, Tensor]", scalars: dict[str, Any]
    ) -> "tuple[Tensor, ...]":
        """Return the differentiable results of the implementation, in order."""
        import torch

        with torch.enable_grad():
            returned = self.forward(*leaves.values(), **scalars)
        results = returned if isinstance(returned, tuple | list) else (returned,)
        return tuple(results[place] for place in self.places)

    def _pulled(
        self,
        results: "Sequence[Tensor]",
        leaves: "dict[str, Tensor]",
        grads: "Sequence[Tensor]",
        *,
        keep: bool = False,
    ) -> "dict[str, Tensor | None]":
        """Return the gradient of each leaf that requires one; None where there is none.

        On a GPU too the calling thread runs the graph, which is watched alone.
        """
        import torch

        needed = {name: x for name, x in leaves.items() if x.requires_grad}
        pairs = [(y, g) for y, g in zip(results, grads, strict=True) if y.requires_grad]
        if not pairs:
            return dict.fromkeys(needed)
        made, into = zip(*pairs, strict=True)
        with torch.autograd.set_multithreading_enabled(False):
            found = torch.autograd.grad(
                made, list(needed.values()), into, allow_unused=True, retain_graph=keep
            )
        return dict(zip(needed, found, strict=True))

    def _returned(
        self,
        found: "dict[str, Tensor | None]",
        leaves: "dict[str, Tensor]",
        given: "Sequence[Tensor]",
    ) -> Any:
        """Return gradients as results: None as 0, and none in another's memory.

        Autograd may hand on the gradient that it was given.
        """
        import torch

        taken = {_memory(x) for x in given[len(self.tensors) :]}
        made = []
        for name in self.wanted:
            grad = found.get(name)
            if grad is None:
                grad = torch.zeros(
                    leaves[name].shape,
                    dtype=leaves[name].dtype,
                    device=leaves[name].device,
                )
            elif _memory(grad) in taken:
                grad = grad.detach().clone(memory_format=torch.contiguous_format)
            taken.add(_memory(grad))
            made.append(grad.detach())
        return tuple(made) if len(made) > 1 else made[0]


def _memory(x: "Tensor") -> int:
    return x.untyped_storage().data_ptr() if x.numel() else id(x)
