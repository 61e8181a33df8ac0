"""An operator at another rank: one of its dimensions as several, or as none."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.shape_class import ShapeClass
from kfuzz.numerics.acceptance import Acceptance, Problem, reshaped
from kfuzz.strategies.parameters import TensorParameter

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.contracts.operator import Operator

Shape = tuple[int, ...]


def unfolded(operator: "Operator", dims: Mapping[str, str]) -> "Operator":
    """Return the operator with dimensions replaced: group_norm's L by "H W".

    Arguments are given to the oracle and the error model with these dimensions as one;
    a result that then has the shape of an argument gets that argument's own.

    Args:
        operator: one whose results are unique.
        dims: by dimension the names that stand for it, side by side, "" for none.

    Raises:
        BindingError: if a dimension is not the operator's, is one that something else
            depends on, or a name is taken.
    """
    where = f"{operator.name}.unfolded"
    tensors = operator.tensors
    known = {name for p in tensors.values() for name in p.names}
    bounds = {p.below for p in operator.indices.values()}
    bounds |= ShapeClass(operator.shape_class).names if operator.shape_class else set()
    for name, text in dims.items():
        if name not in known:
            raise BindingError(
                f"{name!r} is no dimension of {operator.signature_text()}",
                where=where,
                fix=suggestion(name, sorted(known)),
            )
        taken = sorted((known - {name}) & set(text.split()))
        if name in bounds or taken:
            why = f"{taken[0]!r} is taken" if taken else "its size or indices are named"
            raise BindingError(f"{name!r} cannot be unfolded: {why}", where=where)
    if operator.relation is not None or operator.forward is not None:
        raise BindingError("its results are not unfolded", where=where)
    model = operator.error_model
    inputs = {
        name: replace(p, dims=_replaced(p.dims, dims))
        if isinstance(p, TensorParameter)
        else p
        for name, p in operator.inputs.items()
    }
    return replace(
        operator,
        inputs=inputs,
        oracle=_flat_oracle(operator.oracle, list(tensors.values()), dims),
        error_model=_flat_model(model, tensors, dims)
        if callable(model) and not hasattr(model, "around")
        else model,
        reduced=None if operator.reduced in dims else operator.reduced,
        batch=_replaced(operator.batch, dims).partition(" ")[0],
        workspaces=tuple(_replaced(w, dims) for w in operator.workspaces),
    )


def _replaced(text: str, dims: Mapping[str, str]) -> str:
    return " ".join(filter(None, (dims.get(name, name) for name in text.split())))


def _flat_shape(
    shape: Sequence[int], parameter: TensorParameter, dims: Mapping[str, str]
) -> Shape:
    """Return the shape of an argument with the dimensions of one name as one."""
    counts = [len(dims[n].split()) if n in dims else 1 for n in parameter.names]
    leading = len(shape) - sum(counts)
    made, at = list(shape[:leading]), leading
    for count in counts:
        size = 1
        for n in shape[at : at + count]:
            size *= n
        made.append(size)
        at += count
    return tuple(made)


def _flat_oracle(
    oracle: Callable[..., Any],
    parameters: Sequence[TensorParameter],
    dims: Mapping[str, str],
) -> Callable[..., Any]:
    @functools.wraps(oracle)
    def unfolding(*given: "Tensor | None", **scalars: Any) -> Any:
        flat: list[Tensor | None] = []
        own: dict[Shape, Shape] = {}
        for x, parameter in zip(given, parameters, strict=False):
            if x is not None:
                shape = _flat_shape(x.shape, parameter, dims)
                own.setdefault(shape, tuple(x.shape))
                x = x.reshape(shape)
            flat.append(x)
        returned = oracle(*flat, **scalars)
        several = isinstance(returned, tuple | list)
        results = returned if several else (returned,)
        made = tuple(y.reshape(own.get(tuple(y.shape), y.shape)) for y in results)
        return made if several else made[0]

    return unfolding


def _flat_model(
    model: Callable[[Problem], Any],
    tensors: Mapping[str, TensorParameter],
    dims: Mapping[str, str],
) -> Callable[[Problem], Any]:
    @functools.wraps(model)
    def unfolding(problem: Problem) -> Any:
        flat: dict[str, Tensor] = {}
        own: dict[Shape, Shape] = {}
        for name, x in problem.tensors.items():
            shape = _flat_shape(x.shape[1:], tensors[name], dims)
            own.setdefault(shape, tuple(x.shape))
            flat[name] = x.reshape(x.shape[0], *shape)
        found = model(replace(problem, tensors=flat))

        def whole(a: Acceptance) -> Acceptance:
            return reshaped(a, own.get(a.shape, tuple(a.reference.shape)))

        if isinstance(found, Mapping):
            return {name: whole(a) for name, a in found.items()}
        return whole(found)

    return unfolding
