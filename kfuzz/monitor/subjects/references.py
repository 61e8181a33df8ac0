"""Functions held to a plain reference, under the running-error shadow.

A reference is any function in plain torch that takes what the monitored one takes,
nested structures too. It runs in float64, and each of its results is admitted within
four times the bound that its own steps give in the function's arithmetic; see
`kfuzz/numerics/README.md`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import NARROW
from kfuzz.contracts.reference import reference_bounds
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Scalar
from kfuzz.core.verdict import Kind
from kfuzz.monitor.seen import LEAF, Returned, Seen, TensorCopy, flattened, nest_of
from kfuzz.monitor.subjects.arithmetic import OwnDraws, Recurrences
from kfuzz.monitor.subjects.subject import Outside, dtype_name
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.run import Metadata
from kfuzz.numerics.shadow import in_float32
from kfuzz.strategies.parameters import ScalarParameter, TensorParameter

MAX_RANK: Final = 4
FLOATS: Final = ("float32", "float16", "bfloat16")
"""Dtypes whose arithmetic float64 is precise enough to judge."""

Rebuild = Callable[
    [Sequence[Tensor], Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]
]
"""From tensors and scalars to what the reference is called with."""


# Tuples, lists, named tuples and what `torch.topk` returns, in the text of a structure.
_NAMED: Final = "|".join(x for x in dir(torch.return_types) if not x.startswith("_"))
_SEQUENCES: Final = re.compile(
    rf"\((?:(?:tuple|list|{_NAMED}), None|namedtuple, <class '[^']*'>),"
)


class _Hole:
    """Stands where a tensor was; compared by `is`, in other processes too."""


@dataclass(frozen=True)
class Structure:
    """What a call's arguments are made of besides tensors.

    Attributes:
        names: a name for each tensor, in order.
        leaves: all leaves, `_Hole` for each tensor.
        spec: the structure around them: of (args, kwargs).
    """

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    spec: Any

    @classmethod
    def of(
        cls, bound: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> "tuple[Structure, list[Tensor]]":
        """Take arguments apart; returns the structure and the tensors.

        Args:
            bound: names of what is passed, in order; values that are one tensor have
                the name, others a name for each of theirs.
            args: what is passed by position.
            kwargs: what is passed by keyword.
        """
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        names: dict[int, str] = {}
        for name, value in bound.items():
            parts = [x for x in pytree.tree_leaves(value) if isinstance(x, Tensor)]
            for i, part in enumerate(parts):
                alone = isinstance(value, Tensor)
                names.setdefault(id(part), name if alone else f"{name}_{i}")
        used: dict[str, int] = {}
        chosen = []
        for i, tensor in enumerate(tensors):
            name = names.get(id(tensor), f"tensor{i}")
            again = used.get(name, 0)
            used[name] = again + 1
            chosen.append(f"{name}_{again}" if again else name)
        held = tuple(_Hole if isinstance(x, Tensor) else x for x in leaves)
        return cls(tuple(chosen), held, spec), tensors

    @property
    def scalars(self) -> list[Any]:
        """The leaves that are no tensors."""
        return [x for x in self.leaves if x is not _Hole]

    def rebuild(
        self, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments of the structure with other tensors."""
        left = iter(tensors)
        leaves = [next(left) if x is _Hole else x for x in self.leaves]
        made: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(
            leaves, self.spec
        )
        return made


@dataclass(frozen=True)
class Outcome:
    """What a reference returned.

    Attributes:
        tensors: those among its leaves.
        kinds: names of the types of all leaves.
        form: the structure around them, as text.
        changed: places of the arguments that it overwrote.
        recurs: whether it called a recurrent layer.
    """

    tensors: tuple[Tensor, ...]
    kinds: tuple[str, ...]
    form: str
    changed: tuple[int, ...] = ()
    recurs: bool = False


class Reference:
    """A reference for arguments of one structure and of given dtypes.

    Attributes:
        operator: it as an operator, whose error model is its own shadow.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        dtypes: Mapping[str, str],
        scalars: Mapping[str, Scalar],
        rebuild: Rebuild,
        outputs: tuple[str, ...],
        results: int,
        declaration: Declaration,
        tf32: frozenset[str] = frozenset(),
        known: Sequence[Tensor] | None = None,
    ) -> None:
        """Make the operator.

        Args:
            function: the reference.
            name: of the operator.
            dtypes: dtype of each tensor argument, "" for what the declaration says.
            scalars: the other arguments that have a name, with their defaults.
            rebuild: from tensors and scalars to the reference's arguments.
            outputs: names of the results that are tensors.
            results: how many these are; of another number than names they have others.
            declaration: what the function claims.
            tf32: kinds of float32 products that may take TF32 operands.
            known: what the reference gives in its own arithmetic for the call that is
                judged, if nothing else is to be admitted; floating tensors.

        Raises:
            BindingError: if no argument is a floating tensor.
            Outside: if no result is a tensor.
        """
        if not results:
            raise Outside("the reference returns no tensor")
        if len(outputs) != results:
            outputs = tuple(f"y{i}" for i in range(results))
        self._function = function
        self._rebuild = rebuild
        self._tf32 = tf32
        self._known = known
        self._dtypes = tuple(dtypes.values())
        self._inplace = [i for i, n in enumerate(dtypes) if n in declaration.inplace]
        inputs: dict[str, Any] = {
            n: TensorParameter("*", dtype=dtype) for n, dtype in dtypes.items()
        }
        inputs.update({n: ScalarParameter(v, ()) for n, v in scalars.items()})
        self.operator = Operator(
            name,
            inputs=inputs,
            oracle=self._oracle,
            error_model=self._admitted,
            outputs=outputs,
            ranks=range(MAX_RANK + 1),
            dtypes=FLOATS,
            defaults=declaration,
        )

    def outcome(
        self,
        tensors: Sequence[Tensor],
        scalars: Mapping[str, Any],
        *,
        compares: bool = False,
        narrows: Declaration | None = None,
    ) -> Outcome:
        """Run the reference on copies of tensors in the dtypes that they have.

        Args:
            tensors: its tensor arguments, in order.
            scalars: the others by name.
            compares: whether what it overwrites is found by the bits too: torch counts
                no write of `batch_norm` to its running statistics, or through `.data`.
            narrows: a kernel's claims where scalars are passed as it may get them.
        """
        given = [x.clone() for x in tensors]
        versions = [x._version for x in given]
        args, kwargs = self._rebuild(given, scalars)
        if narrows is not None:
            args, kwargs = pytree.tree_map(
                partial(in_float32, declared=narrows), (args, kwargs)
            )
        with torch.no_grad(), OwnDraws(), Recurrences() as recurrences:
            returned = self._function(*args, **kwargs)
        moved = [
            i for i, x in enumerate(given)
            if x._version != versions[i]
            or (compares and not torch.equal(_bits(x), _bits(tensors[i])))
        ]  # fmt: skip
        for i in self._inplace:  # what it returns besides is the same, or nothing
            returned = returned if isinstance(returned, Tensor) else given[i]
        leaves, form = flattened(returned)
        return Outcome(
            tuple(x for x in leaves if isinstance(x, Tensor)),
            tuple(_kind(x) for x in leaves),
            form,
            tuple(i for i in moved if i not in self._inplace),
            recurrences.found,
        )

    def native(
        self, values: Sequence[Tensor], scalars: Mapping[str, Any]
    ) -> Outcome | None:
        """Run the reference in the arguments' own dtypes; None where torch cannot.

        Narrow formats lack some operators on the CPU.
        """
        try:
            return self.outcome(values, scalars, compares=True)
        except (NotImplementedError, RuntimeError):
            return None

    def _oracle(
        self, *tensors: Tensor, narrows: Declaration | None = None, **scalars: Any
    ) -> tuple[Tensor, ...]:
        """The reference that was given, in float64; of narrow scalars if asked for."""
        return self._computed(*self._typed(tensors, None), narrows=narrows, **scalars)

    def _computed(
        self, *tensors: Tensor, narrows: Declaration | None = None, **scalars: Any
    ) -> tuple[Tensor, ...]:
        found = self.outcome(tensors, scalars, narrows=narrows)
        return tuple(_as_oracle(x) for x in found.tensors)

    def _typed(
        self, tensors: Sequence[Tensor], main: torch.dtype | None
    ) -> list[Tensor]:
        """Return arguments in dtypes of their own; floats in one where it is given."""
        made = []
        for x, name in zip(tensors, self._dtypes, strict=False):
            if name and DTYPES[name].kind != "float":
                x = x.to(getattr(torch, name))
            elif main is not None and x.is_floating_point():
                x = x.to(getattr(torch, name) if name else main)
            made.append(x)
        return made

    def _admitted(self, problem: Problem) -> dict[str, Acceptance]:
        """Return what is admitted of each result of one member, by the shadow.

        In the formats that the reference gives in its own arithmetic.
        """
        if self._known is not None:
            return {
                name: around(
                    problem, x[None].to(torch.float64), 0.0,
                    output=FORMATS[dtype_name(x.dtype)],
                )
                for name, x in zip(self.operator.outputs, self._known, strict=True)
            }  # fmt: skip
        values = [x[0] for x in problem.tensors.values()]
        typed = self._typed(values, problem.format.dtype)
        native = self.native(typed, problem.scalars)
        names = self.operator.outputs
        formats = [problem.output.name] * len(names)
        dtypes: list[torch.dtype] = []
        if native is not None and len(native.tensors) == len(names):
            dtypes = [x.dtype for x in native.tensors]
            given = map(dtype_name, dtypes)
            formats = [f if f in FORMATS else problem.output.name for f in given]
        tf32 = self._tf32
        if "recurrence" in tf32 and (native is None or native.recurs):
            tf32 |= {"matmul"}  # what such a layer is made of
        claims, narrowed = problem.declaration, None
        passed = pytree.tree_leaves(self._rebuild(typed, problem.scalars))
        if any(in_float32(x, claims) != x for x in passed if isinstance(x, float)):
            narrowed = partial(self._oracle, narrows=claims)
        return reference_bounds(
            problem,
            self._oracle,
            names,
            name=self.operator.name,
            formats=formats,
            tf32=tf32,
            narrowed=narrowed,
            computed=None if NARROW.isdisjoint(self._dtypes) else self._computed,
            dtypes=dtypes,
        )


def _kind(leaf: Any) -> str:
    return "Tensor" if isinstance(leaf, Tensor) else type(leaf).__name__


def _as_oracle(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)


def misfit(seen: Seen, native: Outcome, names: Sequence[str]) -> Metadata | None:
    """Return what is wrong with the type or dtype of a result, None if nothing.

    Args:
        seen: what the function returned.
        native: what the reference returned, in its own arithmetic.
        names: of the results that are tensors.
    """
    leaves = seen.returned.leaves
    kinds = tuple("Tensor" if isinstance(x, TensorCopy) else x for x in leaves)
    # Tuples of whatever kind and lists are alike.
    form, wanted_form = (
        _SEQUENCES.sub("(tuple,", f) for f in (seen.returned.form, native.form)
    )
    if kinds != native.kinds or form != wanted_form:
        what = (
            f"returns {seen.returned.kind} of {', '.join(kinds) or 'nothing'}, the "
            f"reference {', '.join(native.kinds) or 'nothing'}"
        )
        if kinds == native.kinds:
            what = "returns its results in another structure than the reference"
        return Metadata(Kind.WRONG_TYPE, "", what)
    for name, copy, wanted in zip(
        names, seen.returned.copies, native.tensors, strict=True
    ):
        if copy.dtype != wanted.dtype:
            what = f"{name} is {copy.dtype}, expected {wanted.dtype}"
            return Metadata(Kind.WRONG_DTYPE, name, what)
    return None


def is_same(seen: Seen, native: Outcome) -> bool:
    """Whether a function returned bit for bit what the reference does.

    Args:
        seen: what the function returned, of the same dtypes as
        native: what the reference returned, in its own arithmetic.
    """
    return all(
        copy.shape == tuple(x.shape) and torch.equal(_bits(copy.values), _bits(x))
        for copy, x in zip(seen.returned.copies, native.tensors, strict=True)
    )


def _bits(x: Tensor) -> Tensor:
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


def numbers_of(seen: Seen) -> Seen:
    """Return an observed call with its tensors alone as flat results.

    Integers and truth values as int64: what an oracle gives.
    """
    copies = [replace(x, values=_as_oracle(x.values)) for x in seen.returned.copies]
    form = LEAF if len(copies) == 1 else "flat"
    kind, nest = seen.returned.kind, nest_of(len(copies))
    return replace(seen, returned=Returned(tuple(copies), form, kind, nest))


def main_dtype(dtypes: Mapping[str, str]) -> str:
    """Return the dtype of the first floating argument.

    Raises:
        Outside: if there is none that float64 can judge.
    """
    for name in dtypes.values():
        if DTYPES[name].kind == "float":
            if name not in FLOATS:
                raise Outside(f"{name} data: no oracle is precise enough")
            return name
    raise Outside("no argument is a floating tensor")
