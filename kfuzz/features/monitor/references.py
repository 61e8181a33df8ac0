"""Functions held to an operator's contract."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.contracts.binding import Arguments as Taken
from kfuzz.contracts.binding import BoundKernel, match_signature
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import reference
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Scalar
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.features.examining import in_own_types, reference_bounds
from kfuzz.features.monitor.seen import (
    Call,
    Returned,
    Seen,
    TensorCopy,
    can_copy,
    nest_of,
)
from kfuzz.features.monitor.subjects import (
    Judged,
    NoDraws,
    Outside,
    Recurrences,
    Subject,
    case_of,
    conforms,
    dtype_name,
    is_plain,
    judged,
    named,
    outside,
    scalar_of,
    signature_of,
    tf32_allowed,
)
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.accumulation import identical
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.run import Metadata
from kfuzz.numerics.shadow import in_float32
from kfuzz.strategies.parameters import ScalarParameter, TensorParameter

_EMPTY: Final = inspect.Parameter.empty
_UNGIVEN: Final = object()  # the default of what has none that is known
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class OperatorSubject(Subject):
    """A function whose calls are judged by an operator's contract.

    Attributes:
        operator: what it is to compute.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        operator: Operator,
        declaration: Declaration,
        **named: Any,
    ) -> None:
        """Find out how calls become those of the operator.

        Args:
            function: what is called.
            operator: what it is to compute.
            declaration: what it claims.
            named: as for `Subject`: name, explicit, arguments and kernel.

        Raises:
            BindingError: if they do not.
        """
        super().__init__(
            function, declaration, operator_name=operator.name_in_contracts, **named
        )
        self.operator = operator
        self._binder = None if self.arguments else _Binder(self, function)
        self._order = (*operator.tensors, *declaration.out, *operator.scalars)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the operator's arguments of a call; see `Subject.call`."""
        if self.arguments is not None:
            made = self.arguments(*args, **kwargs)
            given = named(made, self._order, f"monitor of {self.name}")
        else:
            assert self._binder is not None
            given = self._binder.given(args, kwargs)
        return self._sorted(given)

    def _sorted(self, given: Mapping[str, Any]) -> Call:
        operator, claims = self.operator, self.declaration
        tensors: dict[str, Tensor] = {}
        for name, parameter in operator.tensors.items():
            if given.get(name) is not None:
                tensors[name] = _plain(given, name)
            elif not parameter.optional:
                raise Outside(f"no tensor for {name}")
        scalars = {n: given[n] for n in operator.scalars if n in given}
        written: dict[str, Tensor] = {}
        if claims.inplace:
            several = len(operator.outputs) > 1
            places = claims.inplace if several else operator.outputs
            taken = [tensors[name] for name in claims.inplace]
            written = dict(zip(places, taken, strict=True))
        if claims.out:
            for name in operator.outputs:
                if name not in written:
                    written[name] = _plain(given, name)
        return Call(tensors, scalars, written, frozenset(claims.inplace))

    def results(self, returned: Any) -> Any:
        """Return what of a returned object the operator speaks of.

        A backward function returns None for what has no gradient.
        """
        if self.operator.forward is None or not isinstance(returned, tuple):
            return returned
        return tuple(x for x in returned if x is not None)

    def judge(self, seen: Seen) -> Judged:
        """Judge a call by the operator's contract; see `Subject.judge`."""
        operator, claims = self.operator, self.declaration
        scalars = {n: scalar_of(v, n) for n, v in seen.scalars.items()}
        whole = {n: operator.default_of(n) for n in operator.scalars} | scalars
        if operator.dim is not None and type(whole[operator.dim]) is not int:
            raise Outside(f"{operator.dim}={whole[operator.dim]!r:.40} is no axis")
        if seen.verdict_only:
            case = case_of(operator, seen, whole, valued=False)
            fits = not outside(operator, claims, case)
            if fits and conforms(operator, claims, case, seen):
                report = CaseReport({"K-VAL-01": Verdict.CONFORMS})
                return Judged(case, report, replayable=False)
        case = case_of(operator, seen, whole)
        if why := outside(operator, claims, case):
            raise Outside(why)
        report = judged(operator, claims, self.explicit, case, seen)
        return Judged(case, report, self._takes(case, scalars))

    def _takes(self, case: Case, scalars: Mapping[str, Scalar]) -> bool:
        """Whether the kernel can be called on the case as it was here."""
        if self.kernel is None:
            return False
        takes = self.kernel.arguments
        given = tuple(case.tensors)
        passed = all(
            n in takes.scalars or v == self.operator.default_of(n)
            for n, v in scalars.items()
        )
        # Those at the end stay at their defaults, whatever these are.
        complete = takes.tensors[: len(given)] == given
        if not complete and set(given) <= set(takes.tensors):
            complete = takes.nullable.issuperset(takes.lacking(given))
        return complete and passed


def _plain(given: Mapping[str, Any], name: str) -> Tensor:
    """Return an argument that is a plain tensor, or raise Outside."""
    value = given.get(name)
    if not isinstance(value, Tensor) or not can_copy(value):
        raise Outside(f"{name} is {type(value).__name__}, no plain tensor")
    return value


class _Binder:
    """From a call's arguments to the operator's, by the function's signature."""

    def __init__(self, subject: OperatorSubject, function: Callable[..., Any]) -> None:
        self._where = f"monitor of {subject.name}"
        self._operator = subject.operator
        self._claims = subject.declaration
        self._owner = subject.owner
        self._rest: tuple[str, ...] = ()
        signature = signature_of(function)
        if signature is None:
            # A builtin, torch.softmax for one: it takes what the operator takes.
            inputs = subject.operator.inputs
            self._signature = inspect.Signature(
                [inspect.Parameter(n, _POSITIONAL[1], default=_UNGIVEN) for n in inputs]
            )
            self._names = {n: n for n in inputs}
            return
        self._signature = signature
        self._names = self._of_method() if self._owner else self._of_function(function)

    def _of_function(self, function: Callable[..., Any]) -> dict[str, str]:
        """Return the operator's name of each parameter, as `kfuzz.kernel` passes it."""
        claims = self._claims
        takes: Taken = match_signature(
            self._operator, function, self._where, claims.out, claims.configs
        )
        own = (*takes.scalars, *takes.destinations)
        left = [n for n in takes.positional if n not in own]
        found = {}
        for p in self._signature.parameters.values():
            if p.name in own:
                found[p.name] = p.name
            elif p.kind in _POSITIONAL and left:
                found[p.name] = left.pop(0)
        self._rest = tuple(left)  # of *args
        return found

    def _of_method(self) -> dict[str, str]:
        """Return the operator's name of each parameter after the owner.

        Its own name where the operator has it; the others are tensors, in order.
        """
        operator, claims = self._operator, self._claims
        known = {*operator.inputs, *claims.out}
        parameters = list(self._signature.parameters.values())[1:]
        taken = {p.name for p in parameters if p.name in known}
        left = [n for n in operator.tensors if n not in taken]
        found = {}
        for p in parameters:
            if p.name in known:
                found[p.name] = p.name
            elif p.kind in _POSITIONAL and p.default is p.empty:
                if not left:
                    raise BindingError(
                        f"{p.name!r} is no parameter of {operator.signature_text()}",
                        where=self._where,
                        fix="give arguments=, from its arguments to the operator's",
                    )
                found[p.name] = left.pop(0)
        return found

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return a call's arguments by the operator's names.

        Raises:
            Outside: if a parameter of the function's own is not at its default.
        """
        bound = self._signature.bind(*args, **kwargs)
        found: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            parameter = self._signature.parameters[name]
            if name == self._owner:
                continue
            if name in self._names:
                found[self._names[name]] = value
            elif parameter.kind is parameter.VAR_POSITIONAL:
                found.update(zip(self._rest, value, strict=False))
            elif parameter.kind is parameter.VAR_KEYWORD:
                for key, each in value.items():
                    known = key in self._operator.inputs or key in self._claims.out
                    (found if known else own)[key] = each
            elif value is not (default := parameter.default):
                alike = type(value) is type(default) and is_plain(value)
                if not alike or value != default:
                    own[name] = value
        for name, value in own.items():
            if not any(c.get(name) == value for c in self._claims.configs):
                raise Outside(f"{name}= is the function's own, and not at its default")
        for name, own_name in self._names.items():  # the function's own defaults
            default = self._signature.parameters[name].default
            is_known = default is not _EMPTY and default is not _UNGIVEN
            if is_known and name not in bound.arguments:
                found.setdefault(own_name, default)
        if self._owner == "self":  # what a method is not passed, it may have
            for name in set(self._operator.inputs) - found.keys():
                value = getattr(args[0], name, None)
                if value is not None and not callable(value):
                    found[name] = value
        return found


# Functions held to a plain reference, under the running-error shadow.
#
# A reference is any function in plain torch that takes what the monitored one takes,
# nested structures too. It runs in float64, and each of its results is accepted within
# four times the bound that its own steps give in the function's arithmetic; see
# `kfuzz/numerics/README.md`.

MAX_RANK: Final = 4
FLOATS: Final = ("float32", "float16", "bfloat16")
"""Dtypes whose arithmetic float64 is precise enough to judge."""


class _Hole:
    """Stands where a tensor was; compared by `is`."""


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
        used: Counter[str] = Counter()
        chosen = []
        for i, tensor in enumerate(tensors):
            name = names.get(id(tensor), f"tensor{i}")
            chosen.append(f"{name}_{used[name]}" if used[name] else name)
            used[name] += 1
        held = tuple(_Hole if isinstance(x, Tensor) else x for x in leaves)
        return cls(tuple(chosen), held, spec), tensors

    def rebuild(
        self, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments of the structure with other tensors."""
        left = iter(tensors)
        leaves = [next(left) if x is _Hole else x for x in self.leaves]
        made: Any = pytree.tree_unflatten(leaves, self.spec)
        args, kwargs = made
        return args, kwargs


@dataclass(frozen=True)
class Outcome:
    """What a reference returned.

    Attributes:
        tensors: those among its leaves.
        kinds: names of the types of all leaves.
        nest: the structure around them, as `nest_of` says it.
        changed: places of the arguments that it overwrote.
        recurs: whether it called a recurrent layer.
    """

    tensors: tuple[Tensor, ...]
    kinds: tuple[str, ...]
    nest: Any
    changed: tuple[int, ...] = ()
    recurs: bool = False


class Reference:
    """A reference for arguments of one structure and of given dtypes.

    Attributes:
        operator: it as an operator, whose error model is its own shadow.
        main: dtype of the first floating argument.
        dtypes: those of the arguments that have another one, "" for the rest.
        scalars: the other arguments that have a name.
    """

    def __init__(
        self,
        subject: "ReferenceSubject",
        seen: Seen,
        results: int,
        known: Sequence[Tensor] | None = None,
    ) -> None:
        """Make the operator.

        Args:
            subject: the function with its reference.
            seen: a call of it.
            results: how many results are tensors; of another number than names they
                have others.
            known: what the reference gives in its own arithmetic for the call that is
                judged, if nothing else is to be accepted; floating tensors.

        Raises:
            Outside: if no argument is a floating tensor, or no result a tensor.
        """
        if not results:
            raise Outside("the reference returns no tensor")
        outputs, declaration = subject.outputs, subject.declaration
        if len(outputs) != results:
            outputs = tuple(f"y{i}" for i in range(results))
        given = {n: dtype_name(c.dtype) for n, c in seen.tensors.items()}
        self.main = main_dtype(given)
        # "" for what the declaration says.
        self.dtypes = {n: "" if d == self.main else d for n, d in given.items()}
        scalars = {n: scalar_of(v, n) for n, v in seen.scalars.items()}
        self.scalars = {n: v for n, v in scalars.items() if n not in given}
        structure: Structure = seen.rest
        self._function, self._rebuild = subject.plain, structure.rebuild
        self._tf32, self._known = seen.tf32, known
        self._inplace = [i for i, n in enumerate(given) if n in declaration.inplace]
        inputs: dict[str, Any] = {
            n: TensorParameter("*", dtype=dtype) for n, dtype in self.dtypes.items()
        }
        inputs.update({n: ScalarParameter(v, ()) for n, v in self.scalars.items()})
        self.operator = Operator(
            subject.operator_name, inputs=inputs, oracle=self._oracle,
            error_model=self._accepted, outputs=outputs, ranks=range(MAX_RANK + 1),
            dtypes=FLOATS, defaults=declaration,
        )  # fmt: skip

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
        with torch.no_grad(), NoDraws(), Recurrences() as recurrences:
            returned = self._function(*args, **kwargs)
        moved = [
            i for i, x in enumerate(given)
            if x._version != versions[i]
            or (compares and not identical(x, tensors[i]))
        ]  # fmt: skip
        for i in self._inplace:  # what it returns besides is the same, or nothing
            returned = returned if isinstance(returned, Tensor) else given[i]
        leaves = pytree.tree_leaves(returned)
        return Outcome(
            tuple(x for x in leaves if isinstance(x, Tensor)),
            tuple(_kind(x) for x in leaves),
            nest_of(returned),
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
        typed = in_own_types(tensors, [*self.dtypes.values()])
        return self._computed(*typed, narrows=narrows, **scalars)

    def _computed(
        self, *tensors: Tensor, narrows: Declaration | None = None, **scalars: Any
    ) -> tuple[Tensor, ...]:
        found = self.outcome(tensors, scalars, narrows=narrows)
        return tuple(map(_as_oracle, found.tensors))

    def _accepted(self, problem: Problem) -> dict[str, Acceptance]:
        """Return what is accepted of each result of one member, by the shadow.

        In the formats that the reference gives in its own arithmetic.
        """
        if self._known is not None:
            known = zip(self.operator.outputs, self._known, strict=True)
            return {
                name: around(problem, x[None].to(torch.float64), 0.0,
                             output=FORMATS[dtype_name(x.dtype)])
                for name, x in known
            }  # fmt: skip
        values = [x[0] for x in problem.tensors.values()]
        own = [*self.dtypes.values()]
        typed = in_own_types(values, own, problem.format.name)
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
            problem, self._oracle, names, name=self.operator.name, formats=formats,
            tf32=tf32, narrowed=narrowed, dtypes=dtypes,
            computed=self._computed, arguments=own,
        )  # fmt: skip


def _kind(leaf: Any) -> str:
    return "Tensor" if isinstance(leaf, Tensor) else type(leaf).__name__


def _as_oracle(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)


def mismatch(seen: Seen, native: Outcome, names: Sequence[str]) -> Metadata | None:
    """Return what is wrong with the type or dtype of a result, None if nothing.

    Args:
        seen: what the function returned.
        native: what the reference returned, in its own arithmetic.
        names: of the results that are tensors.
    """
    leaves = seen.returned.leaves
    kinds = tuple("Tensor" if isinstance(x, TensorCopy) else x for x in leaves)
    if kinds != native.kinds:
        what = (
            f"returns {seen.returned.kind} of {', '.join(kinds) or 'nothing'}, the "
            f"reference {', '.join(native.kinds) or 'nothing'}"
        )
        return Metadata(Kind.WRONG_TYPE, "", what)
    if seen.returned.nest != native.nest:
        what = "returns its results in another structure than the reference"
        return Metadata(Kind.WRONG_TYPE, "", what)
    for name, copy, x in zip(names, seen.returned.copies, native.tensors, strict=True):
        if copy.dtype != x.dtype:
            what = f"{name} is {copy.dtype}, expected {x.dtype}"
            return Metadata(Kind.WRONG_DTYPE, name, what)
    return None


def numbers_of(seen: Seen) -> Seen:
    """Return an observed call with its tensors alone as flat results.

    Integers and truth values as int64: what an oracle gives.
    """
    copies = [replace(x, values=_as_oracle(x.values)) for x in seen.returned.copies]
    nest = 0 if len(copies) == 1 else (0,) * len(copies)
    return replace(seen, returned=Returned(tuple(copies), nest, seen.returned.kind))


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


# Functions whose calls are judged by a plain reference.

# A reference may return its own argument, or say nothing of order and memory.
WITHOUT: Final = frozenset({"K-MEM-04", "C-CMP-01", "K-OWN-01"})
# Claims that say nothing of what is computed.
_NO_ARITHMETIC: Final = frozenset({"inplace", "out", "dtypes"})


class ReferenceSubject(Subject):
    """A function whose calls are judged by a reference in plain torch."""

    def __init__(
        self,
        function: Callable[..., Any],
        plain: Callable[..., Any],
        declaration: Declaration,
        *,
        outputs: tuple[str, ...],
        **named: Any,
    ) -> None:
        """Take a function and its reference.

        Args:
            function: what is called.
            plain: the reference; takes the same arguments, without the owner and
                the destinations.
            declaration: what the function claims; `inplace` names parameters of the
                reference, `out` of the function.
            outputs: names of the results that are tensors.
            named: as for `Subject`: name, explicit and arguments.
        """
        known_as = getattr(plain, "__name__", type(plain).__name__)
        super().__init__(function, declaration, operator_name=known_as, **named)
        self.plain = plain
        self.outputs = outputs
        self._signature = signature_of(function)
        self._wanted = signature_of(plain)
        if declaration.out and self._signature is None:
            raise BindingError(
                "out= of a function without signature", where=f"monitor of {self.name}"
            )

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the arguments of a call; see `Subject.call`."""
        written = self._destinations(args, kwargs)
        if self.arguments is None:
            args, kwargs = self._without(args, kwargs, written)
        else:
            made: Any = self.arguments(*args, **kwargs)
            args, kwargs = (), {}
            if isinstance(made, Mapping):
                kwargs = dict(made)
            else:
                args = (made,) if isinstance(made, Tensor) else tuple(made)
        # By the reference's parameters, defaults left out.
        bound: dict[str, Any] = {f"x{i}": x for i, x in enumerate(args)} | kwargs
        if self._wanted is not None:
            bound = dict(self._wanted.bind(*args, **kwargs).arguments)
        structure, found = Structure.of(bound, args, kwargs)
        tensors = dict(zip(structure.names, found, strict=True))
        for name in (*tensors, *self.declaration.inplace):
            _plain(tensors, name)
        for name in self.declaration.inplace:
            written = {self.outputs[0]: tensors[name]}
        # What torch's flags allow, unless an accumulator is declared.
        open_ = on_gpu(found) and "accumulator" not in self.explicit
        return Call(
            tensors, {n: v for n, v in bound.items() if is_plain(v)}, written,
            frozenset(self.declaration.inplace), structure,
            tf32_allowed() if open_ else frozenset(),
        )  # fmt: skip

    def _destinations(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Tensor]:
        if not self.declaration.out:
            return {}
        assert self._signature is not None
        bound = self._signature.bind(*args, **kwargs)
        given = {**bound.arguments, **kwargs}
        pairs = zip(self.outputs, self.declaration.out, strict=True)
        return {output: _plain(given, name) for output, name in pairs}

    def _without(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        written: Mapping[str, Tensor],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a call's arguments without the owner and the destinations."""
        places = [id(x) for x in written.values()]
        rest = args[1:] if self.owner else args
        kept = tuple(x for x in rest if id(x) not in places)
        return kept, {n: x for n, x in kwargs.items() if id(x) not in places}

    def judge(self, seen: Seen) -> Judged:
        """Judge a call by the reference; see `Subject.judge`."""
        if seen.handed:
            raise Outside(seen.handed)
        made = Reference(self, seen, len(seen.returned.copies))
        native = made.native([c.values.contiguous() for c in seen.tensors.values()], {})
        metadata = None
        if native is not None:
            if native.changed:
                name = tuple(seen.tensors)[native.changed[0]]
                what = f"the reference overwrites {name}: declare inplace={name!r}"
                raise Outside(what)
            made = Reference(self, seen, len(native.tensors))
            metadata = mismatch(seen, native, made.operator.outputs)
            # A call that did to the bit what the reference does, of which no more is
            # asked, needs no bound, which costs many passes over the data.
            stored = {dtype_name(x.dtype) for x in native.tensors} <= FORMATS.keys()
            plain = stored and self.explicit <= _NO_ARITHMETIC
            pairs = zip(seen.returned.copies, native.tensors, strict=False)
            alike = metadata is None and plain
            if alike and all(identical(c.values, x) for c, x in pairs):
                made = Reference(self, seen, len(native.tensors), native.tensors)
        operator = made.operator
        case = case_of(operator, seen, made.scalars, by_size=True)
        if why := outside(operator, self.declaration, case):
            raise Outside(why)
        report = judged(
            operator, self.declaration, self.explicit, case, numbers_of(seen),
            without=WITHOUT, metadata=metadata,
        )  # fmt: skip
        return Judged(case, report, self._takes(made, native))

    def _takes(self, made: Reference, native: Outcome | None) -> bool:
        """Whether the kernel can be called on the case as it was here."""
        if self.kernel is None or native is None:
            return False
        operator, takes = self.kernel.operator, self.kernel.arguments
        # Such an operator stores all results in the format of its arguments.
        return (
            takes.tensors == tuple(made.dtypes)
            and not any(made.dtypes.values())
            and set(made.scalars) <= set(takes.scalars)
            and {dtype_name(x.dtype) for x in native.tensors} == {made.main}
            and len(operator.outputs) == len(native.tensors)
        )

    def bind(self, function: Callable[..., Any], **place: Any) -> None:
        """Make a kernel that kfuzz calls by itself, where the signatures tell how.

        Args:
            function: the monitored one.
            place: module, line and top_level, as of `BoundKernel`.
        """
        if self.owner or self.arguments or self.declaration.out:
            return
        plain = self.plain
        if self.declaration.inplace:
            plain = _pure(plain, self.declaration.inplace[0])
        try:
            operator = reference(
                plain, name=self.operator_name, outputs=self.outputs,
                dtypes=FLOATS, ranks=range(MAX_RANK + 1), defaults=self.declaration,
            )  # fmt: skip
            arguments = match_signature(operator, function, f"monitor of {self.name}")
        except BindingError:
            return
        self.kernel = BoundKernel(
            function,
            name=self.name,
            operator=operator,
            declaration=self.declaration,
            explicit=self.explicit,
            arguments=arguments,
            **place,
        )


def _pure(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that returns what another one writes to a parameter."""

    @wraps(function)
    def pure(*tensors: Tensor, **scalars: Any) -> Any:
        given = [x.clone() for x in tensors]
        returned = function(*given, **scalars)
        at = list(inspect.signature(function).parameters).index(name)
        return returned if isinstance(returned, Tensor) else given[at]

    return pure


def reference_declaration(name: str, **claims: Any) -> Declaration:
    """Return what a function held to a reference claims.

    `out` and `inplace` name parameters here.

    Raises:
        BindingError: if a claim is unknown, or several parameters are overwritten.
    """
    claims.setdefault("dtypes", FLOATS)
    made = Declaration().declare(f"monitor of {name}", **claims)
    if len(made.inplace) > 1:
        raise BindingError(
            "inplace= names one parameter of a reference", where=f"monitor of {name}"
        )
    return made


def on_gpu(tensors: Sequence[Tensor]) -> bool:
    """Whether some tensors lie on a GPU."""
    return any(x.is_cuda for x in tensors)
