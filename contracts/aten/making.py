"""From a row and a schema to an operator: parameters, oracle and error model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kfuzz import strategies as ks
from kfuzz.contracts.aten.arguments import NO_DEFAULT, Argument, packed
from kfuzz.contracts.aten.naming import NAMED, accepting, naming
from kfuzz.contracts.aten.rows import AXIS, USUAL, Judged, Named, Row, Tensors
from kfuzz.contracts.aten.schemas import overload
from kfuzz.contracts.operator import MOVES, Operator, Structure, Tolerance
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.finding import ATEN as NAMESPACE
from kfuzz.core.results import LIST
from kfuzz.core.results import named as results_by_name
from kfuzz.strategies.parameters import DimParameter, Parameter, TensorParameter

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

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
        return _of_parameters(made, said.text, inputs)
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


class Oracle:
    """Torch's own overload on float64 copies of the tensors."""

    def __init__(
        self,
        overload: Any,
        arguments: tuple[Argument, ...],
        inputs: Mapping[str, Parameter],
        outputs: tuple[str, ...],
    ) -> None:
        self.overload = overload
        self._arguments = arguments
        self._names = [n for n, p in inputs.items() if isinstance(p, TensorParameter)]
        self._tensors = tensors_of(inputs)
        self._outputs = outputs
        self.__name__ = str(overload)
        self.__doc__ = f"{overload._schema}"

    def __call__(self, /, *tensors: Any, **scalars: Any) -> Any:
        """Return the results that are judged."""
        named = dict(zip(self._names, tensors, strict=False))
        positional, keywords = packed(
            self._arguments, known_of(named, scalars, self._tensors)
        )
        return first(self.overload(*positional, **keywords), self._outputs)


def first(returned: Any, outputs: tuple[str, ...]) -> Any:
    """Return the first results of an overload: one, or a tuple of those of outputs."""
    if not isinstance(returned, tuple | list) or outputs[0].endswith(LIST):
        return returned
    return returned[0] if len(outputs) == 1 else tuple(returned[: len(outputs)])


def tensors_of(inputs: Mapping[str, Parameter]) -> dict[str, TensorParameter]:
    """Return the parameters that are tensors."""
    return {n: p for n, p in inputs.items() if isinstance(p, TensorParameter)}


def known_of(
    tensors: Mapping[str, Any],
    scalars: Mapping[str, Any],
    parameters: Mapping[str, TensorParameter],
) -> dict[str, Any]:
    """Return tensors, scalars and sizes of dimensions by name."""
    known: dict[str, Any] = {}
    for name, x in tensors.items():
        if x is not None:
            known |= parameters[name].sizes(x.shape)
    return {**known, **scalars, **tensors}


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
    oracle = Oracle(found, arguments, inputs, outputs)
    has_axis = any(isinstance(p, DimParameter) for p in inputs.values())
    name = f"{NAMESPACE}{row.name}"
    exact = row.judged is Judged.EXACT
    defaults = MOVES if exact else Declaration()
    if row.wraps:
        defaults = replace(defaults, out_of_bounds="undefined")
    more: dict[str, Any] = {}
    if exact:
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
    names = [n for n, p in inputs.items() if isinstance(p, TensorParameter)]

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
    oracle = Oracle(found, arguments, inputs, base.outputs)
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
