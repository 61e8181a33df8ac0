"""An operator at another rank: one of its dimensions as several, or as none."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.shape_class import ShapeClass
from kfuzz.numerics.acceptance import Acceptance, Problem, reshaped
from kfuzz.numerics.models.elementwise import Elementwise
from kfuzz.strategies.parameters import TensorParameter

Shape = tuple[int, ...]


def unfolded(operator: Operator, dims: Mapping[str, str]) -> Operator:
    """Return the operator with dimensions replaced: group_norm's L by "H W".

    Arguments are given to the oracle and the error model with each as one dimension. A
    result whose sizes up to it are an argument's gets it as the argument has it.

    Args:
        operator: one whose results are unique.
        dims: by dimension the names that stand for it, side by side, "" for none.

    Raises:
        BindingError: if a dimension is not the operator's, is one that something else
            depends on, or a name is taken.
    """
    where = f"operator {operator.name}, unfolded"
    if operator.relation is not None or operator.forward is not None:
        raise BindingError("its results are not unfolded", where=where)
    for name, text in dims.items():
        operator = _unfolded(operator, name, text.split(), where)
    return operator


def _unfolded(
    operator: Operator, name: str, names: Sequence[str], where: str
) -> Operator:
    tensors = operator.tensors
    known = {axis for p in tensors.values() for axis in p.names}
    if name not in known:
        raise BindingError(
            f"{name!r} is no dimension of {operator.signature_text()}",
            where=where,
            fix=suggestion(name, sorted(known)),
        )
    bounds = {p.below for p in operator.indices.values()}
    bounds |= ShapeClass(operator.shape_class).names if operator.shape_class else set()
    taken = sorted((known - {name}) & set(names))
    if name in bounds or taken:
        why = f"{taken[0]!r} is taken" if taken else "its size or indices are named"
        raise BindingError(f"{name!r} cannot be unfolded: {why}", where=where)

    def replaced(text: str) -> str:
        every = (names if axis == name else [axis] for axis in text.split())
        return " ".join(axis for axes in every for axis in axes)

    inputs = {
        argument: replace(p, dims=replaced(p.dims))
        if isinstance(p, TensorParameter)
        else p
        for argument, p in operator.inputs.items()
    }
    model, count = operator.error_model, len(names)
    if model is not None and not isinstance(model, Elementwise):
        model = _merging_model(model, tensors, name, count)
    return replace(
        operator,
        inputs=inputs,
        oracle=_merging_oracle(operator.oracle, list(tensors.values()), name, count),
        error_model=model,
        reduced=None if operator.reduced == name else operator.reduced,
        batch=replaced(operator.batch).partition(" ")[0],
        workspaces=tuple(replaced(w) for w in operator.workspaces),
    )


@dataclass(frozen=True)
class _Split:
    """Where one argument has the dimension: what stands before it, and its sizes."""

    before: Shape
    sizes: Shape

    def merged(self, x: Tensor) -> Tensor:
        """Return the argument with the dimension as one."""
        at = len(self.before) + len(self.sizes)
        return x.reshape(*self.before, math.prod(self.sizes), *x.shape[at:])

    def apart(self, shape: Shape) -> Shape | None:
        """Return the shape of a result of such leading sizes with it as several."""
        at = len(self.before)
        if shape[: at + 1] != (*self.before, math.prod(self.sizes)):
            return None
        return (*self.before, *self.sizes, *shape[at + 1 :])


def _split(
    shape: Sequence[int], parameter: TensorParameter, name: str, count: int
) -> _Split | None:
    """Return where an argument has the dimension, None where it has not.

    Args:
        shape: of the argument, with any dimensions before those named.
        parameter: of the operator that has the dimension as one.
        name: of the dimension.
        count: of the dimensions that stand for it.
    """
    if name not in parameter.names:
        return None
    at = len(shape) - (len(parameter.names) - 1 + count)
    at += parameter.names.index(name)
    return _Split(tuple(shape[:at]), tuple(shape[at : at + count]))


def _whole(shape: Sequence[int], splits: Sequence[_Split]) -> Shape:
    every = (split.apart(tuple(shape)) for split in splits)
    return next((made for made in every if made is not None), tuple(shape))


def _merging_oracle(
    oracle: Callable[..., Any],
    parameters: Sequence[TensorParameter],
    name: str,
    count: int,
) -> Callable[..., Any]:
    # Its module is this one: rules for gradients are for the operator's own rank.
    @functools.wraps(oracle, assigned=("__name__", "__doc__"))
    def merging(*given: Tensor | None, **scalars: Any) -> Any:
        passed: list[Tensor | None] = []
        splits: list[_Split] = []
        for x, parameter in zip(given, parameters, strict=False):
            split = None if x is None else _split(x.shape, parameter, name, count)
            if x is not None and split is not None:
                splits.append(split)
                x = split.merged(x)
            passed.append(x)
        returned = oracle(*passed, **scalars)
        several = isinstance(returned, tuple | list)
        results = returned if several else (returned,)
        made = tuple(y.reshape(_whole(y.shape, splits)) for y in results)
        return made if several else made[0]

    return merging


def _merging_model(
    model: Callable[[Problem], Any],
    tensors: Mapping[str, TensorParameter],
    name: str,
    count: int,
) -> Callable[[Problem], Any]:
    @functools.wraps(model)
    def merging(problem: Problem) -> Any:
        passed: dict[str, Tensor] = {}
        splits: list[_Split] = []
        for argument, x in problem.tensors.items():
            split = _split(x.shape, tensors[argument], name, count)
            if split is not None:
                splits.append(split)
            passed[argument] = x if split is None else split.merged(x)
        found = model(replace(problem, tensors=passed))

        def whole(a: Acceptance) -> Acceptance:
            return reshaped(a, _whole(a.reference.shape, splits))

        if isinstance(found, Mapping):
            return {output: whole(a) for output, a in found.items()}
        return whole(found)

    return merging
