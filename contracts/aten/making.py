"""From rows and torch's own schemas to operators, and to kernels of the dispatcher.

`add_.Tensor` writes to its first argument what `add.Tensor` gives, `add.out` to `out`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Final

from kfuzz import strategies as ks
from kfuzz.contracts.aten import tables
from kfuzz.contracts.aten.rows import (
    AXIS,
    NAMED,
    USUAL,
    Named,
    Row,
    Tensors,
    accepting,
    naming,
)
from kfuzz.contracts.operator import MOVES, Form, Operator, Structure, Tolerance
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.verdict import LIST
from kfuzz.core.verdict import named as results_by_name
from kfuzz.strategies.parameters import DimParameter, Parameter, TensorParameter

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

ROWS: Final = tables.ROWS | {
    row.name: replace(row, suite=operator.name)
    for operator in OPERATORS.values()
    for row in operator.aten
}
"""Every row by name; what an operator says of an overload stands for a shadowed row."""


NAMESPACE: Final = "aten::"


def plain(name: str) -> str:
    """Return an overload's name as the table has it.

    "aten::add.Tensor", "torch.ops.aten.add.Tensor" and "add.Tensor" are one;
    "relu.default" is "relu".
    """
    text = name.removeprefix("torch.ops.")
    text = text.removeprefix(NAMESPACE).removeprefix("aten.")
    return text.removesuffix(".default")


@cache
def overload(name: str) -> Any:
    """Return the `torch._ops.OpOverload` of a plain name.

    Raises:
        BindingError: if torch has none of that name, with the overloads it has.
    """
    found = lookup(name)
    if found is not None:
        return found
    base = name.partition(".")[0]
    every = list(overloads(base))
    raise BindingError(
        f"torch has no overload aten::{name}",
        fix=f"those of {base}: {', '.join(every)}" if every else "check the name",
    )


@cache
def lookup(name: str) -> Any:
    """Return the overload of a plain name, None if there is none."""
    import torch

    base, _, which = name.partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    if packet is None or (which or "default") not in packet.overloads():
        return None
    return getattr(packet, which or "default")


def overloads(base: str) -> Iterator[str]:
    """Yield the plain names of all overloads of one operator."""
    import torch

    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    for which in packet.overloads() if packet is not None else ():
        yield base if which == "default" else f"{base}.{which}"


def written(given: Any) -> tuple[Any, ...]:
    """Return the arguments of the schema that an overload writes to."""
    arguments = given._schema.arguments
    return tuple(
        a for a in arguments if a.alias_info is not None and a.alias_info.is_write
    )


def is_view(given: Any) -> bool:
    """Whether results share the memory of an argument that is only read."""
    returns = given._schema.returns
    shared = any(r.alias_info is not None for r in returns)
    return shared and not written(given)


def name_of(given: Any) -> str:
    """Return the plain name of an overload."""
    schema = given._schema
    return plain(f"{schema.name}.{schema.overload_name or 'default'}")


def base_of(name: str) -> str | None:
    """Return the overload that gives what another one writes; None if there is none.

    Args:
        name: of an in-place overload or one with `out`, plain.
    """
    from kfuzz.numerics.shadow.mode import functional

    found = lookup(name)
    if found is None or not written(found):
        return None
    base = functional(found)
    return None if base is None else name_of(base)


def missing(name: str, known: Iterator[str]) -> BindingError:
    """Return what is raised of an overload that the table lacks."""
    return BindingError(
        f"the table has no row for aten::{name}",
        fix=f"{suggestion(name, list(known))}; a row is one line in contracts/aten/",
    )


# From an operator's tensors and scalars to the arguments of a schema.
#
# Kernels of torch's dispatcher are called as their schema says: positional arguments in
# order, those behind `*` by name, and what equals its default is left out at the end.


class _NoDefault:
    """Says that an argument has no default."""


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True)
class Argument:
    """One argument of a schema and where its value comes from.

    Attributes:
        name: in the schema.
        kind: its type as torch prints it, "Tensor", "List[int]", "number".
        keyword: whether it is passed by name.
        parameters: the operator's parameters that it consists of: one tensor, the
            tensors of a list, one scalar; none for a constant.
        constant: its value where there is no parameter.
        default: of the schema, else `NO_DEFAULT`.
    """

    name: str
    kind: str
    keyword: bool
    parameters: tuple[str, ...]
    constant: Any
    default: Any

    @property
    def of_tensors(self) -> bool:
        """Whether it is a tensor or a list of them."""
        return "Tensor" in self.kind

    @property
    def listed(self) -> bool:
        """Whether it is a list."""
        return "List[" in self.kind

    def value(self, known: Mapping[str, Any]) -> Any:
        """Return its value.

        Args:
            known: tensors, scalars and sizes of dimensions, by name; what is absent
                is None.
        """
        if self.of_tensors:
            given = [known.get(name) for name in self.parameters]
            if self.listed:
                return given if self.parameters else self.constant
            return given[0] if given else self.constant
        value = known.get(self.parameters[0]) if self.parameters else self.constant
        if self.listed:
            return _numbers(value, known)
        if isinstance(value, str) and "str" not in self.kind:
            return _number(value, known)
        return value


def _numbers(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a list of numbers: "A,-1" is [size of A, -1], 3 is [3]."""
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, str):
        return [_number(part, known) for part in value.split(",") if part]
    return list(value) if isinstance(value, tuple) else [value]


def _number(text: str, known: Mapping[str, Any]) -> Any:
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise BindingError(
        f"{text!r} is neither a number nor a name",
        where="contracts/aten",
        fix=f"names: {', '.join(sorted(known))}",
    )


def packed(
    arguments: Sequence[Argument],
    parameters: Mapping[str, TensorParameter],
    tensors: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments as torch's dispatcher passes them.

    Arguments that equal their defaults are left out where nothing follows them.

    Args:
        arguments: of the schema, in order, without destinations.
        parameters: the operator's tensors, which name their dimensions.
        tensors: by name; what is absent is None.
        scalars: by name, destinations among them.
    """
    known: dict[str, Any] = {}
    for name, x in tensors.items():
        if x is not None:
            known |= parameters[name].sizes(x.shape)
    known = {**known, **scalars, **tensors}
    positional: list[Any] = []
    kept, named = 0, {}
    for argument in arguments:
        value = argument.value(known)
        usual = _equal(value, argument.default)
        if argument.keyword:
            if not usual:
                named[argument.name] = value
            continue
        positional.append(value)
        if not usual:
            kept = len(positional)
    return positional[:kept], named


def _equal(value: Any, default: Any) -> bool:
    """Whether a value is the default; tensors never are."""
    if default is NO_DEFAULT or type(value).__module__.startswith("torch"):
        return False
    if value is None or default is None:
        return value is default
    if isinstance(value, list):
        return bool(isinstance(default, list) and value == default)
    return bool(value == default)


# From a row and a schema to an operator: parameters, oracle and error model.

EXACT: Final = Tolerance(
    Structure.EXACT,
    "the bits of torch's own overload, and -0 stays -0",
    "a move rounds nothing",
)
SHADOWED: Final = Tolerance(
    Structure.INTERVAL,
    "RNE(r - 4 E) <= y <= RNE(r + 4 E), E the running error of the steps; a choice, "
    "a comparison and an index are exact where their operands are",
    "the running-error shadow of torch's own overload (kfuzz/numerics/README.md)",
)


def made(row: Row) -> tuple[Operator, tuple[Argument, ...]]:
    """Return the operator of a row, and what its overload's arguments consist of.

    Raises:
        BindingError: if torch has no such overload, or the row does not fit it.
    """
    found = overload(row.name)
    schema = found._schema
    base = _base(row) if row.suite else None
    inputs: dict[str, Parameter] = {} if base is None else {**base.inputs}
    patterns = _patterns(row)
    arguments = tuple(_argument(a, row, inputs, patterns) for a in schema.arguments)
    unknown = set(row.scalars) - {a.name for a in arguments}
    if unknown:
        raise BindingError(
            f"the row names {', '.join(sorted(unknown))}, no arguments of {schema}",
            where=f"contracts/aten: {row.name}",
        )
    if base is not None:
        return _of_suite(row, base, inputs, arguments, found), arguments
    return _derived(row, inputs, arguments, found), arguments


def _patterns(row: Row) -> Iterator[Tensors]:
    yield from row.tensors
    last: Tensors = row.tensors[-1] if row.tensors else "*"
    while True:
        yield last if isinstance(last, str) else "*"


def _argument(
    argument: Any, row: Row, inputs: dict[str, Parameter], patterns: Iterator[Tensors]
) -> Argument:
    """Return one argument; enters the parameters that it brings."""
    name, kind = argument.name, str(argument.type)
    default = argument.default_value if argument.has_default_value() else NO_DEFAULT
    made = Argument(name, kind, argument.kwarg_only, (), default, default)
    said = row.scalars.get(name, NO_DEFAULT)
    if isinstance(said, Named):
        return _of_parameters(made, said, inputs)
    if "Tensor" in kind and said is NO_DEFAULT and not row.suite:
        return _of_tensors(made, next(patterns), inputs)
    if said is NO_DEFAULT and (not row.suite or name == "keepdim"):
        if not str(argument.real_type).endswith(("ScalarType", "ScalarType]")):
            said = USUAL.get(name, NO_DEFAULT)
        if said is not NO_DEFAULT and default is None:
            said = NO_DEFAULT
        if isinstance(said, tuple) and default is not NO_DEFAULT:
            said = (default, *(v for v in said if v != default))
    if said is NO_DEFAULT:
        if default is NO_DEFAULT:
            raise BindingError(
                f"the row does not declare {name!r}, which has no default",
                where=f"contracts/aten: {row.name}",
            )
        return made
    if said is AXIS:
        first = next(n for n, p in inputs.items() if isinstance(p, TensorParameter))
        inputs[name] = ks.dim(of=first)
    elif isinstance(said, tuple):
        inputs[name] = ks.scalar(said[0], said[1:])
    else:
        return replace(made, constant=said)
    return replace(made, parameters=(name,))


def _of_parameters(
    argument: Argument, text: str, inputs: Mapping[str, Parameter]
) -> Argument:
    """Return an argument that consists of parameters of the suite's operator."""
    names = tuple(text.strip("[]").split(","))
    if argument.of_tensors or (text in inputs and not argument.listed):
        return replace(argument, parameters=names)
    return replace(argument, parameters=(), constant=",".join(names))


def _of_tensors(
    argument: Argument, pattern: Tensors, inputs: dict[str, Parameter]
) -> Argument:
    if pattern is None:
        return replace(argument, constant=None)
    if argument.listed:
        every = (pattern,) if isinstance(pattern, str) else pattern
        names = tuple(f"{argument.name}_{i}" for i in range(len(every)))
        inputs |= {n: tensor_parameter(p) for n, p in zip(names, every, strict=True)}
        return replace(argument, parameters=names)
    assert isinstance(pattern, str)
    inputs[argument.name] = tensor_parameter(pattern)
    return replace(argument, parameters=(argument.name,))


def tensor_parameter(pattern: str) -> TensorParameter:
    """Return the parameter that a pattern of a row describes; see `rows.Tensors`."""
    head, colon, dims = pattern.rpartition(":")
    optional = dims.endswith("?")
    dims, head = dims.rstrip("?").strip(), head.strip()
    if head.startswith("below "):
        below = head.removeprefix("below ")
        return ks.indices(dims, below=below, optional=optional)
    if head == "bool":
        return ks.masks(dims, optional=optional)
    if head.startswith(("[", "(")):
        return ks.tensors(dims, optional=optional, within=head)
    if head in ("weight", "bias", "variance", "mask"):
        return ks.tensors(dims, role=head, optional=optional)
    return ks.tensors(dims, optional=optional, dtype=head if colon else "")


def _oracle(
    overload: Any,
    arguments: tuple[Argument, ...],
    inputs: Mapping[str, Parameter],
    outputs: tuple[str, ...],
) -> Callable[..., Any]:
    """Return torch's own overload on float64 copies of the tensors."""
    parameters = tensors_of(inputs)

    def oracle(*tensors: Any, **scalars: Any) -> Any:
        given = dict(zip(parameters, tensors, strict=False))
        positional, keywords = packed(arguments, parameters, given, scalars)
        return first(overload(*positional, **keywords), outputs)

    oracle.__name__, oracle.__doc__ = str(overload), f"{overload._schema}"
    return oracle


def first(returned: Any, outputs: tuple[str, ...]) -> Any:
    """Return the first results of an overload: one, or a tuple of those of outputs."""
    if not isinstance(returned, tuple | list) or outputs[0].endswith(LIST):
        return returned
    return returned[0] if len(outputs) == 1 else tuple(returned[: len(outputs)])


def tensors_of(inputs: Mapping[str, Parameter]) -> dict[str, TensorParameter]:
    """Return the parameters that are tensors."""
    return {n: p for n, p in inputs.items() if isinstance(p, TensorParameter)}


def _outputs(row: Row, found: Any) -> tuple[str, ...]:
    if row.outputs:
        return row.outputs
    returns = found._schema.returns
    if len(returns) == 1:
        return ("y" + LIST,) if "List[Tensor]" in str(returns[0].type) else ("y",)
    return tuple(r.name or f"y{i}" for i, r in enumerate(returns))


def _derived(
    row: Row, inputs: dict[str, Parameter], arguments: tuple[Argument, ...], found: Any
) -> Operator:
    """Return the operator of a row that stands by itself."""
    outputs = _outputs(row, found)
    oracle = _oracle(found, arguments, inputs, outputs)
    has_axis = any(isinstance(p, DimParameter) for p in inputs.values())
    name = f"{NAMESPACE}{row.name}"
    defaults = MOVES if row.exact else Declaration()
    if row.wraps:
        defaults = replace(defaults, out_of_bounds="undefined")
    more: dict[str, Any] = {}
    if row.exact:
        model = _exactly(oracle, outputs, inputs)
        more = {"error_model": model, "tolerance": EXACT}
    elif outputs == NAMED:
        first_of = next(iter(inputs))
        more = {
            "error_model": accepting(oracle, name, first_of),
            "relation": naming(first_of),
        }
    return Operator(
        name,
        inputs=inputs,
        oracle=oracle,
        outputs=outputs,
        integers=row.integers,
        shape_class=row.shape_class,
        ranks=row.ranks or range(1 if has_axis else 0, 5),
        defaults=defaults,
        **{"tolerance": SHADOWED, **more},
    )


def _exactly(
    oracle: Callable[..., Any], outputs: tuple[str, ...], inputs: Mapping[str, Any]
) -> "Callable[[Problem], Mapping[str, Acceptance]]":
    """Return the error model of what only moves elements."""
    names = tensors_of(inputs)

    def accept(problem: "Problem") -> "dict[str, Acceptance]":
        """Return the exact acceptance, signs of zeros included."""
        import torch

        from kfuzz.numerics.acceptance import moved

        members = next(iter(problem.tensors.values())).shape[0]
        rows: list[dict[str, Any]] = []
        for i in range(members):
            given = [problem.tensors.get(n) for n in names]
            row = oracle(
                *(None if t is None else t[i] for t in given), **problem.scalars
            )
            rows.append(results_by_name(row, outputs))
        return {
            name: moved(problem, torch.stack([row[name] for row in rows]))
            for name in rows[0]
        }

    return accept


def _base(row: Row) -> Operator:
    """Return the suite's operator of a row, at the ranks that the overload takes."""
    base = OPERATORS[row.suite]
    if row.unfolded:
        base = base.unfolded(**row.unfolded)
    return replace(base, ranks=row.ranks) if row.ranks else base


def _of_suite(
    row: Row,
    base: Operator,
    inputs: dict[str, Parameter],
    arguments: tuple[Argument, ...],
    found: Any,
) -> Operator:
    """Return an operator of the suite, with the scalars that it lacks."""
    extra = {n: p for n, p in inputs.items() if n not in base.inputs}
    if not extra:
        return base
    oracle = _oracle(found, arguments, inputs, base.outputs)
    usual = {n: p.default for n, p in extra.items() if hasattr(p, "default")}

    def accept(problem: "Problem") -> "Mapping[str, Acceptance]":
        """Return the suite's acceptance at the defaults, else the shadow's."""
        from kfuzz.contracts.oracle import accept as accepted
        from kfuzz.numerics.shadow import shadowed

        rest = {n: v for n, v in problem.scalars.items() if n not in usual}
        given = {n: problem.scalars[n] for n in usual}
        kept = given.pop("keepdim", False)
        if all(v == usual[n] for n, v in given.items()):
            posed = replace(problem, scalars=rest)
            made = accepted(replace(base, relation=None), posed)
            return {n: _kept(a, posed) for n, a in made.items()} if kept else made
        takes = replace(base, inputs=inputs, oracle=oracle).oracle_on(problem.tensors)
        found = shadowed(takes, problem, name=f"{NAMESPACE}{row.name}")
        return dict(zip(base.outputs, found, strict=True))

    return replace(
        base,
        name=f"{NAMESPACE}{row.name}",
        inputs=inputs,
        oracle=oracle,
        error_model=accept,
        homogeneous={},
        relation=_kept_relation(base) if "keepdim" in extra else base.relation,
    )


def _kept(accepted: "Acceptance", problem: "Problem") -> "Acceptance":
    """Return an acceptance with the reduced axis kept."""
    from kfuzz.numerics.acceptance import reshaped

    shape = list(accepted.reference.shape)
    shape.insert(len(shape) + 1 + problem.axis(), 1)
    return reshaped(accepted, shape)


def _kept_relation(base: Operator) -> Any:
    """Return the relation of an operator for results with the reduced axis kept."""
    relation = base.relation
    if relation is None:
        return None

    def related(problem: "Problem", outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not problem.scalars["keepdim"]:
            return relation(problem, outputs)
        axis = problem.axis()
        flat = {n: y.squeeze(axis) for n, y in outputs.items()}
        return {n: m.unsqueeze(axis) for n, m in relation(problem, flat).items()}

    related.__doc__ = relation.__doc__
    return related


# Overloads of torch's operators as what kernels compute, by name.
#
# `find("softmax.int")` gives the operator, and how a kernel of the dispatcher's is
# called in its place; of `add_.Tensor` and `add.out` those of `add.Tensor`, and what is
# written.


@dataclass(frozen=True)
class Overload:
    """An overload of torch's by name.

    Attributes:
        name: plain, "add_.Tensor".
        operator: what it computes.
        arguments: of the overload that gives new results, in order.
        inplace: the parameters that it writes its results to.
        out: the arguments that it writes its results to, as `arguments`; their
            parameters are outputs.
        is_view: whether its results may share the memory of an argument.
    """

    name: str
    operator: Operator
    arguments: tuple[Argument, ...]
    inplace: tuple[str, ...] = ()
    out: tuple[Argument, ...] = ()
    is_view: bool = False

    @property
    def claims(self) -> dict[str, Any]:
        """What every kernel of it declares."""
        if self.inplace:
            return {"inplace": self.inplace}
        return {"out": self.operator.outputs} if self.out else {}


def names() -> Iterator[str]:
    """Yield the plain names of the table's rows, sorted; needs no torch."""
    yield from sorted(ROWS)


@cache
def find(name: str) -> Overload:
    """Return an overload by name.

    Args:
        name: "aten::add.Tensor", "add.Tensor"; an in-place overload, or one with
            `out`, has the row of the one whose results it writes.

    Raises:
        BindingError: if torch has none of that name, or the table no row for it.
    """
    text = plain(name)
    given = overload(text)
    if text in ROWS:
        operator, arguments = made(ROWS[text])
        view = is_view(given) or ROWS[text].may_alias
        return Overload(text, operator, arguments, is_view=view)
    base = base_of(text)
    if base is None or base not in ROWS:
        raise missing(text, names())
    operator, arguments = made(ROWS[base])
    targets = written(given)
    results = tuple(_target(a, arguments) for a in targets)
    outputs = tuple(name for a in results for name in a.parameters)
    if any(a.listed for a in results):  # their tensors are results by themselves
        if not outputs:
            raise BindingError(
                f"aten::{text} writes a list of no fixed length",
                fix=f"bind aten::{base}",
            )
        operator, _ = made(replace(ROWS[base], outputs=outputs))
    if len(outputs) != len(operator.outputs):
        raise BindingError(
            f"aten::{text} writes {len(outputs)} results, {len(operator.outputs)} are "
            "judged",
            fix=f"bind aten::{base}",
        )
    if not targets[0].is_out:
        operator = replace(operator, oracle=_in_format(operator.oracle))
        return Overload(text, operator, arguments, inplace=outputs)
    if clash := {*operator.outputs} & {*operator.inputs}:
        raise BindingError(
            f"aten::{text}: {clash.pop()!r} is an argument and a result",
            fix=f"bind aten::{base}",
        )
    each = iter(operator.outputs)
    out = (
        replace(a, parameters=tuple(next(each) for _ in a.parameters)) for a in results
    )
    return Overload(text, operator, arguments, out=tuple(out))


def _in_format(oracle: Callable[..., Any]) -> Callable[..., Any]:
    """Return an oracle whose truth values are numbers, as they are in place."""

    @wraps(oracle)
    def stored(written: Any, /, *tensors: Any, **scalars: Any) -> Any:
        y = oracle(written, *tensors, **scalars)
        truth = hasattr(y, "dtype") and str(y.dtype) == "torch.bool"
        return y.to(written.dtype) if truth else y

    return stored


def _target(argument: Any, arguments: tuple[Argument, ...]) -> Argument:
    """Return an argument of the schema that is written, and what is judged of it.

    A list that is written has a tensor for each one of the first list that is read;
    where none is, nothing says how many it has.
    """
    if not argument.is_out:
        return next(a for a in arguments if a.name == argument.name)
    made = Argument(argument.name, str(argument.type), True, (), None, None)
    read = next((a.parameters for a in arguments if a.of_tensors and a.listed), ())
    names = tuple(f"{made.name}_{i}" for i in range(len(read)))
    return replace(made, parameters=names if made.listed else (made.name,))


# A kernel of the dispatcher's as a function that kfuzz calls.


class AtenForm(Form):
    """An implementation of an overload, called as torch's dispatcher calls it.

    It may take fewer scalars than the schema has: they then keep their defaults.
    """

    def __init__(self, overload: Overload, given: Callable[..., Any]) -> None:
        self.overload = overload
        self.__name__ = str(getattr(given, "__name__", ""))
        self.__wrapped__ = given

    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return the function that an operator's tensors and scalars are passed to."""
        overload, given = self.overload, self.__wrapped__
        takes = taken(given, overload.arguments)
        signature = _signature(operator, takes, overload.out)
        names = [name for name in operator.tensors if name in signature.parameters]
        parameters = tensors_of(operator.inputs)

        def call(*tensors: Any, **keywords: Any) -> Any:
            passed = dict(zip(names, tensors, strict=False))
            every = (*takes, *overload.out)
            positional, named = packed(every, parameters, passed, keywords)
            returned = given(*positional, **named)
            if overload.out or overload.inplace:
                return returned
            results = first(returned, operator.outputs)
            if not overload.is_view:
                return results
            # A view is what the schema declares; kernels that copy are judged alike.
            several = isinstance(results, tuple | list)
            parts = results if several else (results,)
            made = tuple(x.clone() if hasattr(x, "clone") else x for x in parts)
            return made if several else made[0]

        update_wrapper(call, given, updated=())
        call.__name__ = self.__name__
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call


def taken(
    function: Callable[..., Any], arguments: Sequence[Argument]
) -> tuple[Argument, ...]:
    """Return the arguments that a function takes; tensors count as taken."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return tuple(arguments)
    kinds = inspect.Parameter
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters):
        return tuple(arguments)
    named = {p.name for p in parameters if p.kind is not kinds.POSITIONAL_ONLY}
    plain = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    room = sum(p.kind in plain for p in parameters)
    if any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        room = len(arguments)
    made, place = [], 0
    for argument in arguments:
        if argument.keyword:
            takes = argument.name in named
        else:
            takes, place = place < room, place + 1
        if takes or argument.of_tensors:
            made.append(argument)
    return tuple(made)


def _signature(
    operator: Operator, arguments: Sequence[Argument], out: Sequence[Argument]
) -> inspect.Signature:
    """Return the operator's parameters that an implementation takes.

    A tensor that the schema lets be None may be left out of a case.
    """
    kinds = inspect.Parameter
    used = {name for a in arguments for name in a.parameters}
    texts = [a.constant for a in arguments if isinstance(a.constant, str)]
    used |= {name for text in texts for name in text.split(",")}
    absent = {
        name for a in arguments for name in a.parameters if a.kind == "Optional[Tensor]"
    }
    made = []
    for name, p in operator.inputs.items():
        kind: Any = kinds.KEYWORD_ONLY
        default: Any = kinds.empty
        if isinstance(p, TensorParameter):
            kind = kinds.POSITIONAL_OR_KEYWORD
            default = None if name in absent and p.optional else kinds.empty
        elif name in used:
            default = operator.default_of(name)
        if name in used:
            made.append(kinds(name, kind, default=default))
    outs = [name for target in out for name in target.parameters]
    made += [kinds(name, kinds.KEYWORD_ONLY) for name in outs]
    made.sort(key=lambda p: p.kind)
    return inspect.Signature(made)


# Binding implementations to overloads by name.


def form(
    found: Overload, given: Callable[..., Any] | Form
) -> Callable[..., Any] | Form:
    """Return what is bound to an overload's operator in place of an implementation.

    Other forms than functions take the operator's parameters by themselves.
    """
    if isinstance(given, Form) or not callable(given):
        return given
    return AtenForm(found, given)
