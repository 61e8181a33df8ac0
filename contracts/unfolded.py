"""An operator at other ranks: a dimension as several, as none, or as any number."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.shape_class import ShapeClass
from kfuzz.numerics.acceptance import Acceptance, Problem, reshaped
from kfuzz.numerics.models.elementwise import Elementwise
from kfuzz.strategies.parameters import TensorParameter, placed, widest

Shape = tuple[int, ...]
# Volumes in batches with channels; higher ranks are no operators of their own.
_MOST: Final = 5


def unfolded(operator: Operator, dims: Mapping[str, str]) -> Operator:
    """Return the operator with dimensions replaced: group_norm's L by "H W", or by "*".

    Arguments are given to the oracle and the error model with each as one dimension. A
    result whose sizes up to it are an argument's gets it as the argument has it.

    Args:
        operator: one whose results are unique.
        dims: by dimension the names that stand for it, "" for none; "*" among them for
            any number, of a rank of 5 at most. Dimensions that follow it may stand
            among them: cross_entropy's N as "N C H W", or as "* C *".

    Raises:
        BindingError: if a dimension is not the operator's, is one that something else
            depends on, or a name is taken; if it has a "*" besides.
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
    others = [axis for axis in names if axis in known - {name}]
    layout = _Layout(name, names, others)
    taken = others if not all(layout.follow(p.names) for p in tensors.values()) else []
    if layout.varies and any(p.variadic for p in tensors.values()):
        taken = ["*"]
    if name in bounds or taken:
        why = f"{taken[0]!r} is taken" if taken else "its size or indices are named"
        raise BindingError(f"{name!r} cannot be unfolded: {why}", where=where)
    replaced = layout.replaced

    inputs = {
        argument: replace(p, dims=replaced(p.dims))
        if isinstance(p, TensorParameter)
        else p
        for argument, p in operator.inputs.items()
    }
    more: dict[str, Any] = {}
    if layout.varies:
        new = [p for p in inputs.values() if isinstance(p, TensorParameter)]
        least = widest(new)
        more = {"ranks": range(least, _MOST + 1), "usual_rank": least + 1}
    model = operator.error_model
    if model is not None and not isinstance(model, Elementwise):
        model = _merging_model(model, tensors, layout)
    return replace(
        operator,
        inputs=inputs,
        oracle=_merging_oracle(operator.oracle, list(tensors.values()), layout),
        error_model=model,
        reduced=None if operator.reduced == name else operator.reduced,
        batch=replaced(operator.batch).partition(" ")[0].strip("*"),
        workspaces=tuple(replaced(w) for w in operator.workspaces),
        **more,
    )


@dataclass(frozen=True)
class _Split:
    """Where one argument has the dimension.

    Attributes:
        before: sizes of what stands before it.
        places: axes of what stands for it.
        sizes: of these.
    """

    before: Shape
    places: Shape
    sizes: Shape

    def merged(self, x: Tensor) -> Tensor:
        """Return the argument with the dimension as one."""
        at = len(self.before)
        rest = [i for i in range(at, x.dim()) if i not in self.places]
        sizes = (x.shape[i] for i in rest)
        y = x.permute((*range(at), *self.places, *rest))
        return y.reshape((*self.before, math.prod(self.sizes), *sizes))

    def apart(self, shape: Shape) -> Shape | None:
        """Return the shape of a result of such leading sizes with it as several.

        Raises:
            BindingError: if others may stand among these.
        """
        at, count = len(self.before), len(self.sizes)
        if shape[: at + 1] != (*self.before, math.prod(self.sizes)):
            return None
        if shape[at + 1 :] and self.places != tuple(range(at, at + count)):
            raise BindingError("a result cannot be unfolded around other dimensions")
        return (*self.before, *self.sizes, *shape[at + 1 :])


@dataclass(frozen=True)
class _Layout:
    """What stands for a dimension.

    Attributes:
        name: of the dimension.
        names: of what stands for it, "*" for any number, and of the dimensions among
            these.
        others: the latter.
    """

    name: str
    names: Sequence[str]
    others: Sequence[str]

    @property
    def varies(self) -> bool:
        """Whether it stands for any number of dimensions."""
        return "*" in self.names

    def follow(self, axes: Sequence[str]) -> bool:
        """Whether the others that a tensor has come next after the dimension."""
        own = [axis for axis in self.others if axis in axes]
        at = list(axes).index(self.name) + 1 if self.name in axes else 0
        return self.name not in axes or list(axes[at : at + len(own)]) == own

    def present(self, axes: Sequence[str]) -> list[str]:
        """Return what stands in the dimension's place in a tensor that has it."""
        return [n for n in self.names if n not in self.others or n in axes]

    def replaced(self, text: str) -> str:
        """Return the dimensions of a tensor in their new order."""
        axes = text.split()
        if self.name not in axes:
            return text
        at, made = axes.index(self.name), self.present(axes)
        rest = [axis for axis in axes[at + 1 :] if axis not in self.others]
        return " ".join((*axes[:at], *made, *rest)).replace("* *", "*")

    def split(
        self, shape: Sequence[int], parameter: TensorParameter, members: int = 0
    ) -> _Split | None:
        """Return where an argument has the dimension, None where it has not.

        Args:
            shape: of the argument, with any dimensions before those named.
            parameter: of the operator that has the dimension as one.
            members: how many of these are no "*".
        """
        axes = parameter.names
        if self.name not in axes:
            return None
        present = " ".join(self.present(axes)).replace("* *", "*")
        count = len([n for n in self.names if n not in ("*", *self.others)])
        stars = len(shape) - members - (len(axes) - 1) - count if self.varies else 0
        at = len(shape) - (len(axes) - 1 + count + stars) + axes.index(self.name)
        made = enumerate(placed(present, [f"_{i}" for i in range(stars)]), at)
        places = tuple(i for i, axis in made if axis not in self.others)
        return _Split(tuple(shape[:at]), places, tuple(shape[i] for i in places))


def _whole(shape: Sequence[int], splits: Sequence[_Split]) -> Shape:
    every = (split.apart(tuple(shape)) for split in splits)
    return next((made for made in every if made is not None), tuple(shape))


def _merging_oracle(
    oracle: Callable[..., Any],
    parameters: Sequence[TensorParameter],
    layout: _Layout,
) -> Callable[..., Any]:
    # Its module is this one: rules for gradients are for the operator's own rank.
    @functools.wraps(oracle, assigned=("__name__", "__doc__"))
    def merging(*given: Tensor | None, **scalars: Any) -> Any:
        passed: list[Tensor | None] = []
        splits: list[_Split] = []
        for x, parameter in zip(given, parameters, strict=False):
            split = None if x is None else layout.split(x.shape, parameter)
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
    layout: _Layout,
) -> Callable[[Problem], Any]:
    @functools.wraps(model)
    def merging(problem: Problem) -> Any:
        passed: dict[str, Tensor] = {}
        splits: list[_Split] = []
        for argument, x in problem.tensors.items():
            split = layout.split(x.shape, tensors[argument], members=1)
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
