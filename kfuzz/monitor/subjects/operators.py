"""Functions held to an operator's contract."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.binding import Arguments as Taken
from kfuzz.contracts.binding import match_signature
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Scalar
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.monitor import slices
from kfuzz.monitor.judged import judged
from kfuzz.monitor.seen import Call, Seen, can_copy
from kfuzz.monitor.subjects.subject import (
    Judged,
    Outside,
    Subject,
    case_of,
    is_plain,
    named,
    outside,
    scalar_of,
    signature_of,
)

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
            value = given.get(name)
            if value is None:
                if not parameter.optional:
                    raise Outside(f"no tensor for {name}")
                continue
            if not isinstance(value, Tensor) or not can_copy(value):
                raise Outside(f"{name} is {type(value).__name__}, no plain tensor")
            tensors[name] = value
        scalars = {n: given[n] for n in operator.scalars if n in given}
        written: dict[str, Tensor] = {}
        if claims.inplace:
            several = len(operator.outputs) > 1
            places = claims.inplace if several else operator.outputs
            taken = [tensors[name] for name in claims.inplace]
            written = dict(zip(places, taken, strict=True))
        if claims.out:
            for name in operator.outputs:
                if name in written:
                    continue
                if not isinstance(given.get(name), Tensor) or not can_copy(given[name]):
                    raise Outside(f"no tensor for {name}")
                written[name] = given[name]
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
        whole: dict[str, Scalar] = {}
        for name in operator.scalars:
            whole[name] = scalars.get(name, operator.default_of(name))
        if operator.dim is not None and type(whole[operator.dim]) is not int:
            raise Outside(f"{operator.dim}={whole[operator.dim]!r:.40} is no axis")
        if seen.verdict_only:
            case = case_of(operator, seen, whole, valued=False)
            fits = not outside(operator, claims, case)
            if fits and slices.conforms(operator, claims, case, seen):
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
        passed = set(scalars) <= {*takes.scalars, *_defaults(self.operator, scalars)}
        # Those at the end stay at their defaults, whatever these are.
        complete = takes.tensors[: len(given)] == given
        if not complete and set(given) <= set(takes.tensors):
            complete = takes.nullable.issuperset(takes.lacking(given))
        return complete and passed


def _defaults(operator: Operator, scalars: Mapping[str, Scalar]) -> set[str]:
    """Return the scalars that are at their defaults."""
    return {n for n, v in scalars.items() if v == operator.default_of(n)}


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
            elif not _is_default(value, parameter.default):
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


def _is_default(value: Any, default: Any) -> bool:
    alike = type(value) is type(default) and is_plain(value)
    return value is default or (alike and bool(value == default))
