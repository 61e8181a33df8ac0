"""Gradients of every operator: torch's own, and with faults that any can have.

The faults stand in a function of autograd around torch's kernel, which takes its
gradients from a second forward call.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.gradients.operators import rule_of
from kfuzz.contracts.platform.table import DEFECTS, excuses
from kfuzz.contracts.witnesses.planted.base import Base, odd, unpacked
from kfuzz.contracts.witnesses.planted.catalogue import declared
from kfuzz.contracts.witnesses.witness import Witness

Change = Callable[[Sequence[Tensor]], list[Tensor]]

CONTRACT: Final = "K-GRD-01"
# What says how a kernel leaves its results, or of what only kernels of values speak.
_FORWARD_ONLY: Final = frozenset({"inplace", "out", "own_kernels_only", "dtypes"})


def around(
    forward: Callable[..., Any], before: Change = list, after: Change = list
) -> Callable[..., Any]:
    """Return an implementation whose gradients are changed on the way.

    Args:
        forward: the implementation.
        before: makes the gradients of the results that are differentiated with.
        after: makes the gradients of the tensors that are returned.
    """

    @functools.wraps(forward)
    def call(*tensors: Tensor, **scalars: Any) -> Any:
        results = Recomputed.apply(forward, before, after, scalars, *tensors)  # type: ignore[no-untyped-call]
        return results if len(results) > 1 else results[0]

    return call


class Recomputed(torch.autograd.Function):
    """The forward call again, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Any],
        before: Change,
        after: Change,
        scalars: Any,
        *tensors: Tensor,
    ) -> Any:
        """Call the implementation."""
        ctx.given = function, before, after, scalars
        ctx.save_for_backward(*tensors)
        made = unpacked(function(*tensors, **scalars))[0]
        # A result in an argument's memory would be one to autograd.
        owned = {x.untyped_storage().data_ptr() for x in tensors}
        return tuple(
            y.clone() if y.untyped_storage().data_ptr() in owned else y for y in made
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Call it again, with a graph."""
        function, before, after, scalars = ctx.given
        into = before(grads)
        with torch.enable_grad():
            leaves = [
                x.detach().requires_grad_(needed and x.is_floating_point())
                for x, needed in zip(
                    ctx.saved_tensors, ctx.needs_input_grad[4:], strict=True
                )
            ]
            made = unpacked(function(*leaves, **scalars))[0]
        wanted = [x for x in leaves if x.requires_grad]
        pairs = [(y, g) for y, g in zip(made, into, strict=True) if y.requires_grad]
        results, pulled = zip(*pairs, strict=True)
        found = torch.autograd.grad(results, wanted, pulled)
        changed = iter(after(found))
        return *[None] * 4, *(
            next(changed) if x.requires_grad else None for x in leaves
        )


def without_strides(grads: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients read as if they were contiguous."""
    made = []
    for g in grads:
        end = g.storage_offset() + g.numel()
        room = g.untyped_storage().nbytes() // g.element_size()
        if not g.is_contiguous() and end <= room:
            strides = torch.empty(g.shape, device="meta").stride()
            g = g.as_strided(g.shape, strides, g.storage_offset())
        made.append(g)
    return made


def unexpanded(grads: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients of which only the elements that have memory count."""
    made = []
    for g in grads:
        for axis, (n, step) in enumerate(zip(g.shape, g.stride(), strict=True)):
            if step == 0 and n > 1:
                kept = torch.zeros_like(g, memory_format=torch.contiguous_format)
                kept.narrow(axis, 0, 1).copy_(g.narrow(axis, 0, 1))
                g = kept
        made.append(g)
    return made


def without_tail(grads: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients whose last element is 0 where a tile is not full."""
    made = []
    for g in grads:
        if g.numel() and odd(g):
            g = g.clone(memory_format=torch.contiguous_format)
            g.view(-1)[-1] = 0
        made.append(g)
    return made


FAULTS: Final[dict[str, dict[str, Change]]] = {
    "strides": {"before": without_strides},
    "expanded": {"before": unexpanded},
    "tail": {"after": without_tail},
}


def shapes_of(
    bound: BoundKernel, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return the friendly shapes of a gradient's tensors, given the forward ones."""
    operator = bound.operator
    taken = list(operator.tensors.items())
    sizes: dict[str, int] = {}
    leading: tuple[int, ...] = ()
    for (_, parameter), shape in zip(taken, shapes, strict=False):
        named = len(shape) - len(parameter.names)
        sizes |= dict(zip(parameter.names, shape[named:], strict=True))
        if parameter.variadic and len(shape[:named]) > len(leading):
            leading = shape[:named]
    made = list(shapes)
    for _, parameter in taken[len(shapes) :]:
        front = leading if parameter.variadic else ()
        front = front[:-1] if parameter.without else front
        made.append((*front, *(sizes[n] for n in parameter.names)))
    return tuple(made)


def _bind(base: Base, name: str, function: Callable[..., Any]) -> list[BoundKernel]:
    """Bind an implementation and its gradients; return these."""
    claims = {n: v for n, v in base.claims.items() if n not in _FORWARD_ONLY}
    bound = kernel(
        base.operator, name=name, gradients=True, dtypes="float32", **claims
    )(function)
    return [b for n, b in vars(bound).items() if n.startswith("backward")]


def _witnesses() -> list[Witness]:
    found = []
    for base in declared("cpu", torch.__version__).values():
        if rule_of(base.operator) is None:
            continue
        kinds: dict[str, tuple[str, Callable[..., Any]]] = {
            "gradient_of": ("", base.function)
        }
        name = f"torch_{base.operator.name}.backward"
        honest = base.claiming(**excuses(name, DEFECTS, "cpu", torch.__version__))
        for fault, change in FAULTS.items():
            made = around(base.function, **change)
            kinds[f"gradient_{fault}"] = (CONTRACT, made)
        for kind, (contract, function) in kinds.items():
            given = base if contract else honest
            for bound in _bind(given, f"{kind}_{base.operator.name}", function):
                shapes = shapes_of(bound, base.shapes[: len(bound.arguments.tensors)])
                if contract and not _has_place(kind, shapes, bound):
                    continue
                made_of = ("backward.faults", contract, shapes)
                found.append(Witness(bound.name, *made_of, backends=("cpu",)))
    return found


def _has_place(
    kind: str, shapes: tuple[tuple[int, ...], ...], bound: BoundKernel
) -> bool:
    """Whether a fault can show: a number has no strides, a whole row no tail."""
    grads = (
        len(shapes)
        - len(bound.arguments.tensors)
        + sum(n.startswith("grad_") for n in bound.arguments.tensors)
    )
    return kind == "gradient_tail" or any(shapes[len(shapes) - grads :])


WITNESSES: Final = _witnesses()
