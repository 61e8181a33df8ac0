"""Operators: what kernels compute, also of lists, at other ranks, and in libraries.

torch is looked up and not imported: who has an operator of `torch.library` has done so.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kfuzz.contracts.language import Structure as Structure
from kfuzz.contracts.language import Tolerance as Tolerance
from kfuzz.core.declaration import AS_REFERENCE, Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES, FLOAT8
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Case, Scalar, parsed
from kfuzz.core.verdict import LIST, output_of
from kfuzz.strategies.parameters import (
    DimParameter,
    DtypeParameter,
    IndexParameter,
    ListParameter,
    Parameter,
    ScalarParameter,
    SizeParameter,
    TensorParameter,
    placed,
    widest,
)

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.contracts.aten.rows import Row
    from kfuzz.contracts.gradients.rules import Rule
    from kfuzz.numerics.acceptance import Acceptance, Problem
    from kfuzz.numerics.models.functions import Elementwise


# Operators in libraries of a user's own: `torch.library.custom_op`, `torch.ops.ns.op`.

_DEFAULT: Final = "default"

FormFunction = Callable[..., Any]
"""A plain torch function of an operator's tensors, and its scalars by name."""


class CustomOp:
    """An operator of a library as a function.

    Tensors are passed by position, everything else by keyword, whatever the order in
    the schema.
    """

    def __init__(self, overload: Any) -> None:
        self.overload = overload
        packet = overload.overloadpacket
        self.__name__ = str(packet.__name__)
        self.__qualname__ = str(overload)
        self.__module__ = "torch.ops"
        self.__doc__ = f"{overload._schema}"
        self.__signature__ = _signature(overload._schema.arguments, str(overload))
        defined = sys.modules.get("torch._library.custom_ops")
        known = getattr(defined, "OPDEFS", {}).get(overload._schema.name)
        if known is not None:
            self.__wrapped__ = known._init_fn  # its code in Python

    def __call__(self, *tensors: Any, **keywords: Any) -> Any:
        """Call the operator."""
        positional, named = self.packed(*tensors, **keywords)
        return self.overload(*positional, **named)

    def packed(
        self, *tensors: Any, **keywords: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments in the order of the schema, and those that need a name."""
        given = self.__signature__.bind(*tensors, **keywords)
        given.apply_defaults()
        positional, named = [], {}
        for argument in self.overload._schema.arguments:
            value = given.arguments[argument.name]
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        return tuple(positional), named


def custom_op(given: Any) -> CustomOp | None:
    """Return an operator of a library as a function; None if it is something else.

    Raises:
        BindingError: if it has several overloads and none is the default one, or
            takes lists of tensors.
    """
    overload = _overload(given)
    if overload is None:
        return None
    return CustomOp(overload)


def _overload(given: Any) -> Any:
    """Return the overload behind what torch gives people to call, None for others."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    defined = sys.modules.get("torch._library.custom_ops")
    if defined is not None and isinstance(given, defined.CustomOpDef):
        return given._opoverload
    if isinstance(given, torch._ops.OpOverload):
        return given
    if not isinstance(given, torch._ops.OpOverloadPacket):
        return None
    every = {name: getattr(given, name) for name in given.overloads()}
    of_tensors = [name for name, made in every.items() if _takes_tensors(made)]
    if len(of_tensors) == 1 or _DEFAULT in of_tensors:
        return every[_DEFAULT if _DEFAULT in of_tensors else of_tensors[0]]
    raise BindingError(
        f"{given} has the overloads {', '.join(every)}",
        fix=f"name one: torch.ops.{given}.{(of_tensors or list(every))[0]}",
    )


def _takes_tensors(overload: Any) -> bool:
    return any("Tensor" in str(a.type) for a in overload._schema.arguments)


def _signature(arguments: Sequence[Any], where: str) -> inspect.Signature:
    """Return the parameters of a schema: tensors first, then what has a name."""
    tensors: list[inspect.Parameter] = []
    others: list[inspect.Parameter] = []
    for argument in arguments:
        kind = str(argument.type)
        default = inspect.Parameter.empty
        if argument.has_default_value():
            default = argument.default_value
        if kind.startswith(("List[Tensor", "List[Optional[Tensor")):
            raise BindingError(
                f"{argument.name!r} is a list of tensors", where=where,
                fix="bind a function that calls it",
            )  # fmt: skip
        is_tensor = kind in ("Tensor", "Optional[Tensor]") and not argument.kwarg_only
        kinds = inspect.Parameter
        placed = kinds.POSITIONAL_OR_KEYWORD if is_tensor else kinds.KEYWORD_ONLY
        made = kinds(argument.name, placed, default=default)
        (tensors if is_tensor else others).append(made)
    return inspect.Signature([*tensors, *others])


# Parameters that are lists of tensors: oracle and kernel get a list of one to n.
#
# A case has the tensors of a list as arguments of their own, `xs0`, `xs1`, …, of which
# the last ones may be absent.

Lists = Mapping[str, tuple[str, ...]]


def expanded(
    inputs: Mapping[str, Parameter], where: str
) -> tuple[dict[str, Parameter], dict[str, tuple[str, ...]]]:
    """Return parameters with every list as its tensors, and their names by list.

    Dimensions that no other parameter has are each tensor's own: they get its number.

    Raises:
        BindingError: if a name is taken.
    """
    others = {
        name
        for p in inputs.values()
        if isinstance(p, TensorParameter)
        for name in p.names
    }
    made: dict[str, Parameter] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for name, p in inputs.items():
        if not isinstance(p, ListParameter):
            made[name] = p
            continue
        lists[name] = tuple(f"{name}{i}" for i in range(p.most))
        for i, item in enumerate(lists[name]):
            if item in inputs:
                raise BindingError(f"{item!r} is one of the list {name!r}", where=where)
            dims = (
                axis if axis in others or axis == "*" else f"{axis}{i}"
                for axis in p.of.dims.split()
            )
            made[item] = replace(p.of, dims=" ".join(dims), optional=i > 0)
    return made, lists


def places(tensors: Sequence[str], lists: Lists) -> list[str | tuple[str, ...]]:
    """Return what a function takes by position, in order: tensors, or lists."""
    first = {items[0]: items for items in lists.values()}
    inside = {item for items in lists.values() for item in items[1:]}
    return [first.get(name, name) for name in tensors if name not in inside]


def gathering(
    function: Callable[..., Any], tensors: Sequence[str], lists: Lists
) -> Callable[..., Any]:
    """Return a function of lists as one of their tensors, None where there is none.

    A call that has a list already is passed on as it is.

    Args:
        function: takes tensors and lists by position.
        tensors: all tensors, those of lists among them, in order.
        lists: their names by list.
    """
    if not lists:
        return function
    taken = places(tensors, lists)

    @functools.wraps(function)
    def call(*given: Any, **keywords: Any) -> Any:
        if any(isinstance(x, list | tuple) for x in given):
            return function(*given, **keywords)
        by_name = dict(zip(tensors, given, strict=False))
        rest = given[len(by_name) :]
        passed: list[Any] = []
        for place in taken:
            if isinstance(place, tuple):
                items = [by_name.get(item) for item in place]
                passed.append([x for x in items if x is not None])
            elif place in by_name:
                passed.append(by_name[place])
        return function(*passed, *rest, **keywords)

    if (signature := _lists_signature(function, taken)) is not None:
        call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _lists_signature(
    function: Callable[..., Any], taken: Sequence[str | tuple[str, ...]]
) -> inspect.Signature | None:
    """Return the signature with the tensors of lists in their place."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    made: list[inspect.Parameter] = []
    left = list(taken)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for p in signature.parameters.values():
        positional = p.kind in (kind, inspect.Parameter.POSITIONAL_ONLY)
        place = left.pop(0) if left and positional else ""
        if isinstance(place, tuple):
            made.append(p.replace(name=place[0], kind=kind, default=p.empty))
            made += [inspect.Parameter(n, kind, default=None) for n in place[1:]]
        else:
            made.append(p)
    # Python's own rule on defaults does not hold between the tensors of lists.
    return inspect.Signature(made, __validate_parameters__=False)


# What an operator says of its parameters and results, checked.


def check_parameters(operator: Operator) -> None:
    """Check what parameters say of one another, and their domains.

    Raises:
        BindingError: naming the parameter.
    """
    wrong = partial(BindingError, where=f"operator {operator.name}")
    whole = {n for n, p in operator.scalars.items() if type(p.default) is int}
    if not all(type(r) is int and r >= 0 for r in _listed(operator.ranks)):
        raise wrong(
            f"ranks={operator.ranks!r} are no ranks",
            fix="write for example ranks=range(2, 6)",
        )
    for name, index in operator.indices.items():
        others = [p.names for n, p in operator.tensors.items() if n != name]
        others.append(index.names if index.domain else ())
        if not any(index.below in names for names in (*others, whole)):
            raise wrong(
                f"{name}: below={index.below!r} is no dimension of another tensor, "
                "and no integer scalar"
            )
        if index.ignored and index.ignored not in operator.scalars:
            raise wrong(f"{name}: ignored={index.ignored!r} is no scalar parameter")
    for name, size in operator.inputs.items():
        if isinstance(size, SizeParameter):
            _check_size(operator, name, size)
    for name, tensor in operator.tensors.items():
        _check_domain(operator, name, tensor)
        if tensor.variadic and max(operator.ranks, default=-1) < len(tensor.names):
            raise wrong(
                f"{name}: {tensor.dims!r} has no rank among {list(operator.ranks)}",
                fix=f"give ranks= from {len(tensor.names)} up",
            )


def check_results(operator: Operator) -> None:
    """Check the data types of results.

    Raises:
        BindingError: naming the output.
    """
    wrong = partial(BindingError, where=f"operator {operator.name}: results")
    for output in operator.outputs:
        if output.removesuffix(LIST) != output_of(output):
            raise wrong(
                f"{output!r} is no name",
                fix=f"write {output_of(output) + LIST!r} for a list of tensors, "
                "whatever it holds",
            )
    made = {n: str(d).removeprefix("torch.") for n, d in operator.results.items()}
    outputs = [output_of(output) for output in operator.outputs]
    for name, dtype in made.items():
        if name not in outputs:
            fix = suggestion(name, outputs)
            raise wrong(f"{name!r} is no output", fix=fix)
        if dtype not in DTYPES:
            raise wrong(
                f"{name}: unknown dtype {dtype!r}", fix=suggestion(dtype, DTYPES)
            )
    whole = [n for n, d in made.items() if DTYPES[d].kind != "float"]
    whole = [n for n in whole if n not in operator.integers]
    object.__setattr__(operator, "results", MappingProxyType(made))
    object.__setattr__(operator, "integers", (*operator.integers, *whole))


def _check_size(operator: Operator, name: str, size: SizeParameter) -> None:
    wrong = partial(BindingError, where=f"operator {operator.name}")
    index = operator.indices.get(size.of)
    if size.longest and (index is None or not parsed(index.domain).cuts):
        raise wrong(
            f"{name}: {size.of!r} is no parameter of offsets or spans",
            fix='write for example cu_seqlens=ks.offsets("S", of="T"), '
            'max_seqlen=ks.longest("cu_seqlens")',
        )
    if not size.longest and not any(
        size.of in p.names for p in operator.tensors.values()
    ):
        raise wrong(f"{name}: {size.of!r} is no dimension of a tensor")


def _check_domain(operator: Operator, name: str, tensor: TensorParameter) -> None:
    wrong = partial(BindingError, where=f"operator {operator.name}")
    domain = parsed(tensor.domain)
    dtypes = (tensor.dtype,) if tensor.dtype else operator.dtypes
    if domain.axis and (tensor.kind != "float" or not tensor.dims):
        raise wrong(
            f"{name}: probabilities are a floating tensor of one dimension or more"
        )
    if domain.axis and not tensor.variadic and -domain.axis > len(tensor.names):
        raise wrong(
            f"{name}: probabilities={domain.axis}, and it has "
            f"{len(tensor.names)} dimensions"
        )
    if domain.interval is None:
        return
    if tensor.kind == "bool":
        raise wrong(f"{name}: within= is for numbers")
    if any(number in domain.interval for number in (0.0, 1.0)):
        return  # a number of every data type; torch, which knows the others, waits
    from kfuzz.numerics.domains import has_numbers

    for dtype in dtypes:
        if domain.interval.is_empty or not has_numbers(domain.interval, dtype):
            raise wrong(
                f"{name}: no {dtype} number is in {domain.interval}",
                fix="mend within=, or declare other dtypes",
            )


def _listed(ranks: object) -> list[object]:
    return list(ranks) if isinstance(ranks, Collection) else [None]


def check_shape_class(operator: Operator, shape_class: ShapeClass, where: str) -> None:
    """Check that a shape class speaks of what there is.

    Raises:
        BindingError: if it names neither a dimension nor an integer scalar.
    """
    dims = {name for p in operator.tensors.values() for name in p.names}
    dims |= {f"d{i}" for i in range(max(operator.ranks, default=0))}
    scalars = {n for n, p in operator.scalars.items() if type(p.default) is int}
    known = {"N", "M", *dims, *scalars - {operator.dim}}
    if unknown := sorted(shape_class.names - known):
        raise BindingError(
            f"shape_class names {', '.join(unknown)}, neither a dimension nor an "
            "integer scalar",
            where=where,
            fix=f"{suggestion(unknown[0], sorted(known))} (N: the reduced or last "
            "axis, M: the product of the others)",
        )


def check_homogeneity(operator: Operator) -> None:
    """Check what is said to be homogeneous, and which outputs are integers.

    Raises:
        BindingError: if one is no floating argument, or no output.
    """
    kinds = {n: p.kind for n, p in operator.tensors.items()}
    named = [name for group in operator.homogeneous for name in group.split()]
    wrong = [n for n in named if kinds.get(n) != "float"]
    outputs = [output_of(output) for output in operator.outputs]
    wrong += [n for n in operator.integers if n not in outputs]
    if wrong:
        raise BindingError(
            f"{wrong[0]!r} is no floating argument, or no output",
            where=f"operator {operator.name}: homogeneous, integers",
        )
    made = MappingProxyType(dict(operator.homogeneous))
    object.__setattr__(operator, "homogeneous", made)


# Operators: what kernels compute, with domain, oracle and error model.

AcceptFunction = Callable[["Problem"], "Acceptance | Mapping[str, Acceptance]"]
RelationFunction = Callable[["Problem", "Mapping[str, Tensor]"], "Mapping[str, Tensor]"]

# What operators that only move or select elements start from, and hold for.
MOVES: Final = Declaration(subnormals="preserve")
EVERY_DTYPE: Final = ("float64", "float32", "float16", "bfloat16", *FLOAT8)


@dataclass(frozen=True)
class Operator:
    """What a kernel computes; contracts/operators/README.md shows how to write one.

    Attributes:
        name: e.g. "softmax".
        inputs: ordered parameters: `kfuzz.strategies.tensors`, `indices`,
            `offsets`, `masks`, `lists`, `scalar`, `size`, `longest`, `dtype`, `dim`.
        oracle: plain torch function of float64 copies of the tensors (int64
            ones of integers, masks as they are; positional, in order) and the
            scalars (keywords, dtypes by name); returns one tensor, float64, of integers
            or of truth values, or a tuple in the order of `outputs`; a list of tensors,
            nested or not, for those that are lists.
        error_model: how much a result may differ: `kfuzz.numerics.elementwise(...)`,
            or a function from a `Problem` to the acceptance of the output, or of each
            output by name; None for the running-error shadow of the forms, or of the
            oracle.
        forms: where there is no error model: plain torch functions, of the same
            arguments, that compute the same as correct kernels do it, by the algorithm
            that a kernel declares, "" for none. What lies within the bound of any of
            them is accepted.
        relation: where the answer is not unique, a function of a `Problem` and
            of the kernel's results: see `kfuzz.contracts.oracle`. It judges
            what the error model admits.
        outputs: names of the results; "parts[]" for a list of tensors, whose results
            are "parts[0]", "parts[1]", ….
        ranks: ranks that a "*" tensor may have, one with most named dimensions.
        usual_rank: the rank that is drawn most, that functional tests have, and that a
            kernel has to take which declares none.
        reduced: axis that the operator reduces where it has no `dim`
            parameter: a dimension name or a negative number; None where it
            reduces none.
        shape_class: what dimensions and integer scalars must satisfy together,
            e.g. "C % num_groups == 0"; every case keeps it, besides what the
            kernel declares.
        chain: names of the operators that a fused one combines, in order,
            e.g. ("linear", "relu").
        batch: dimension along which rows are independent of one another; "" for
            the first of the "*" ones.
        homogeneous: the degree of the result in an argument, or in several that are
            scaled together ("x bias"; a kernel may omit some): scaling by a power of
            two then commutes with the operator exactly. Only for operators that
            consist of sums, products and choices of arguments and constants.
        integers: outputs that hold integers; they keep their value.
        results: the data types of outputs that do not have that of the data, by name:
            {"loss": "float32"}; of integers and truth values where they are not those
            that the oracle returns.
        workspaces: dimension names of tensors that the oracle allocates,
            e.g. "B H S T"; they count against the element budget, as arguments do.
        usual: sizes of some dimensions in functional tests; the others get powers
            of two.
        defaults: the declaration that a kernel starts from.
        dtypes: floating dtypes for which the oracle is precise enough.
        algorithms: what `algorithm=` may name, each with its meaning in words.
        empty_reduction: whether the reduced axis may have size 0.
        recentres: whether shifting the data by a constant per row leaves the
            problem well posed, so that cancellation can be told apart.
        groups: the scalar that says into how many groups the dimension before the
            reduced one falls, a row being all of a group; "" where none does.
        subtracts_mean: whether the mean is taken out of the data: those with a large
            one are drawn more often.
        out_of_bounds: policies for indices out of bounds that the error model
            knows; "clamp" and "zero" need one that reads the declaration.
        lists: names of the tensors of each list among the parameters; made from these.
        written: whether a NaN that the oracle makes of infinities may be its manner of
            writing: see `kfuzz.contracts.oracle.accept`.
        within: puts changed values, by argument, back into the domain where that is
            more than shapes and types can say; None where it is not.
        forward: the operator whose gradients this one computes; None for others.
        gradient: how it is differentiated; None where autograd differentiates the
            oracle, and for operators of kfuzz's own where gradients are not judged.
        aten: the overloads of torch's that it describes, without their `suite`.
        tolerance: the error model in words, for `kfuzz contracts show`.
        special_values: rules for NaN, Inf and zero in words.
    """

    name: str
    inputs: Mapping[str, Parameter]
    oracle: Callable[..., Any]
    error_model: AcceptFunction | Elementwise | None = None
    forms: Mapping[str, tuple[FormFunction, ...]] = field(default_factory=dict)
    relation: RelationFunction | None = None
    outputs: tuple[str, ...] = ("y",)
    ranks: range = range(1, 5)
    usual_rank: int = 2
    reduced: str | int | None = None
    shape_class: str = ""
    chain: tuple[str, ...] = ()
    batch: str = ""
    homogeneous: Mapping[str, int] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    workspaces: tuple[str, ...] = ()
    usual: Mapping[str, int] = field(default_factory=dict)
    defaults: Declaration = field(default_factory=Declaration)
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    algorithms: Mapping[str, str] = field(default_factory=dict)
    empty_reduction: bool = True
    recentres: bool = False
    groups: str = ""
    subtracts_mean: bool = False
    out_of_bounds: tuple[str, ...] = ("raise", "undefined")
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    written: bool = False
    within: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    forward: Operator | None = None
    gradient: Rule | None = None
    aten: tuple[Row, ...] = ()
    tolerance: Tolerance = field(
        default=Tolerance(
            Structure.INTERVAL,
            "RNE(reference - E) <= y <= RNE(reference + E)",
            "the error model given with the operator",
        )
    )
    special_values: str = "as IEEE 754 arithmetic on the float64 reference"

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            BindingError: if a parameter has no known kind, none is a floating
                tensor, or the shape class does not parse, or one of indices
                names what is not there; if there is no output, or what is to be
                called cannot be.
        """
        wrong = partial(BindingError, where=f"operator {self.name}")
        self._expand_lists()
        if not self.outputs:
            raise wrong("no output")
        for part in ("oracle", "relation"):
            given = getattr(self, part)
            if not callable(given) and (part == "oracle" or given is not None):
                raise wrong(f"{part} is {type(given).__name__}, no function")
        for name, parameter in self.inputs.items():
            if not isinstance(parameter, Parameter):
                raise wrong(
                    f"parameter {name!r} is {type(parameter).__name__}",
                    fix="use kfuzz.strategies.tensors, indices, masks, scalar, dtype "
                    "or dim",
                )
        if all(p.kind != "float" for p in self.tensors.values()):
            one = replace(self.defaults, dtypes=("float32",))  # it matters to none
            object.__setattr__(self, "defaults", one)
        check_parameters(self)
        check_results(self)
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "usual", MappingProxyType(dict(self.usual)))
        check_homogeneity(self)
        demands = [p.demands for p in self.indices.values()]
        terms = [self.shape_class, *(d for d in demands if d not in self.shape_class)]
        whole = " and ".join(term for term in terms if term)
        object.__setattr__(self, "shape_class", whole)
        if self.shape_class:
            where = f"operator {self.name}"
            parsed_class = ShapeClass.parse(self.shape_class, where=where)
            check_shape_class(self, parsed_class, where)
        named = dict(self.algorithms)
        if self.error_model is None:
            named.setdefault(AS_REFERENCE, "the very steps of the oracle")
        object.__setattr__(self, "algorithms", MappingProxyType(named))

    def _expand_lists(self) -> None:
        """Have the tensors of lists as parameters, and an oracle that gathers them."""
        inputs, found = expanded(self.inputs, f"operator {self.name}")
        if found and callable(self.oracle):
            tensors = [n for n, p in inputs.items() if isinstance(p, TensorParameter)]
            object.__setattr__(self, "inputs", inputs)
            object.__setattr__(self, "lists", {**self.lists, **found})
            object.__setattr__(self, "oracle", gathering(self.oracle, tensors, found))

    @property
    def name_in_contracts(self) -> str:
        """What follows the class in identifiers: "softmax" in "K-VAL-01/softmax".

        Of gradients it is the forward operator's name: "K-GRD-01/softmax", of the
        operator "softmax.backward".
        """
        return self.name if self.forward is None else self.forward.name

    @property
    def tensors(self) -> dict[str, TensorParameter]:
        """The tensor parameters, in order."""
        items = self.inputs.items()
        return {n: p for n, p in items if isinstance(p, TensorParameter)}

    @property
    def indices(self) -> dict[str, IndexParameter]:
        """The index parameters, in order."""
        items = self.inputs.items()
        return {n: p for n, p in items if isinstance(p, IndexParameter)}

    @property
    def takes_nonfinite(self) -> bool:
        """Whether a floating argument may hold NaN or an infinity."""
        floats = (p for p in self.tensors.values() if p.kind == "float")
        return any(not p.domain or not parsed(p.domain).is_finite for p in floats)

    @property
    def listed(self) -> frozenset[str]:
        """The tensors that belong to lists."""
        return frozenset(name for items in self.lists.values() for name in items)

    @property
    def straying(self) -> dict[str, IndexParameter]:
        """Those of the index parameters that may be out of bounds, in order."""
        return {n: p for n, p in self.indices.items() if p.strays}

    @property
    def scalars(self) -> dict[str, ScalarParameter | SizeParameter | DimParameter]:
        """The scalar, size and dimension parameters, in order."""
        items = self.inputs.items()
        others = (TensorParameter, ListParameter)
        return {n: p for n, p in items if not isinstance(p, others)}

    @property
    def dim(self) -> str | None:
        """Name of the dimension parameter, if there is one."""
        dims = (n for n, p in self.inputs.items() if isinstance(p, DimParameter))
        return next(dims, None)

    def fixed(self, **scalars: Scalar) -> Operator:
        """Return the operator with scalars at given values, the only ones drawn.

        For kernels that know no other: `attention.fixed(causal=True)`.

        Raises:
            BindingError: if one is no scalar parameter, or not in its domain where
                that is of words or truth values.
        """
        inputs = dict(self.inputs)
        for name, value in scalars.items():
            parameter = inputs.get(name)
            if not isinstance(parameter, ScalarParameter):
                every = self.inputs.items()
                given = [n for n, p in every if isinstance(p, ScalarParameter)]
                raise BindingError(
                    f"{name!r} is no scalar parameter",
                    where=f"operator {self.name}",
                    fix="declare dims= of the kernel"
                    if name == self.dim
                    else suggestion(name, given),
                )
            known = (parameter.default, *parameter.domain)
            closed = any(isinstance(v, str | bool) for v in (value, *known))
            if closed and value not in known:
                raise BindingError(
                    f"{name}={value!r} is not {parameter.describe()}",
                    where=f"operator {self.name}",
                )
            inputs[name] = replace(parameter, default=value, domain=())
        return replace(self, inputs=inputs)

    def unfolded(self, **dims: str) -> Operator:
        """Return the operator at other ranks: `ops.group_norm.unfolded(L="*")`.

        Arguments are given to the oracle and the error model with each dimension as
        one. A result whose sizes up to it are an argument's gets it as the argument has
        it.

        Args:
            dims: by dimension the names that stand for it, "" for none; "*" among them
                for any number, of a rank of 5 at most. Dimensions that follow it may
                stand among them: cross_entropy's N as "N C H W", or as "* C *".

        Raises:
            BindingError: if the results are not unique, if a dimension is not the
                operator's, is one that something else depends on, or a name is taken;
                if it has a "*" besides.
        """
        where = f"operator {self.name}, unfolded"
        if self.relation is not None or self.forward is not None:
            raise BindingError("its results are not unfolded", where=where)
        made = self
        for name, text in dims.items():
            made = _unfolded(made, name, text.split(), where)
        return made

    def fitted(self, case: Case, values: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return changed values put back into the domain; those in it as they are."""
        from kfuzz.numerics.domains import fitted, holds

        made = dict(values)
        for name, x in values.items():
            if domain := self.tensors[name].domain:
                spec = case.tensors[name]
                whole, rank = case.bound(spec), len(spec.shape)
                if not holds(x, domain, whole, rank):
                    made[name] = fitted(x, domain, whole, rank)
        return made if self.within is None else self.within(made)

    def following(self, case: Case, values: Mapping[str, Tensor]) -> dict[str, Scalar]:
        """Return the scalars that follow from sizes and values.

        None for one whose parameter of offsets the case is without.

        Args:
            case: the structure.
            values: elements of the offsets at least, of one item.
        """
        made: dict[str, Scalar] = {}
        for name, p in self.inputs.items():
            if not isinstance(p, SizeParameter):
                continue
            made[name] = case.dims.get(p.of)
            if p.longest and p.of in values:
                parts = values[p.of].diff()
                made[name] = int(parts.max()) if parts.numel() else 0
        return made

    def settled(self, sizes: Mapping[str, int], case: Case) -> dict[str, int]:
        """Return sizes of dimensions, those that the shape class computes settled."""
        if not self.shape_class:
            return dict(sizes)
        scalars = {
            name: value
            for name, p in self.scalars.items()
            if type(value := case.scalars.get(name, p.default)) is int
        }
        return ShapeClass(self.shape_class).settled(sizes, scalars)

    def signature_text(self) -> str:
        """Return the call signature, e.g. "layer_norm(x, weight, bias, *, eps)"."""
        parts = list(self.tensors)
        if self.scalars:
            parts += ["*", *self.scalars]
        return f"{self.name}({', '.join(parts)})"

    def domain_text(self) -> str:
        """Return the domain of the parameters as text."""
        parts = [f"{n}: {p.describe()}" for n, p in self.inputs.items()]
        if any(p.variadic for p in self.tensors.values()):
            parts.append(f"rank {self.ranks.start} to {self.ranks.stop - 1}")
        if not self.empty_reduction:
            parts.append("reduced axis not empty")
        if self.shape_class:
            parts.append(self.shape_class)
        if self.algorithms:
            parts.append(f"algorithm: {', '.join(self.algorithms)}")
        if self.homogeneous:
            degrees = self.homogeneous.items()
            joint = [f"{n.replace(' ', ' with ')}: {d}" for n, d in degrees]
            parts.append(f"homogeneous, of degree: {', '.join(joint)}")
        return "; ".join(parts) + "."

    def oracle_text(self) -> str:
        """Return what the reference is, as text."""
        others = (f for f in self.forms_of(None) if f is not self.oracle)
        docs = [
            ("" if isinstance(f, partial) else f.__doc__ or "").strip()
            for f in (self.oracle, *others)
        ]
        body, *forms = [doc.partition("\n")[0] for doc in docs]
        also = f"Other forms of it: {' '.join(forms)} " if forms else ""
        return (
            f"{body or f'{self.name} in plain torch.'} {also}"
            "Evaluated in float64 on the very bits the kernel was given. "
            f"Special values: {self.special_values}."
        )

    def oracle_on(self, given: Container[str]) -> Callable[..., Any]:
        """Return the oracle as a function of these of the tensors, see `padded`."""
        return self.on(self.oracle, given)

    def on(self, form: FormFunction, given: Container[str]) -> FormFunction:
        """Return the oracle or another form as a function of these of the tensors."""
        there = [name in given for name in self.tensors]
        return form if all(there) else padded(form, there)

    def forms_of(self, algorithm: str | None) -> tuple[FormFunction, ...]:
        """Return the forms that a kernel of an algorithm may take."""
        if algorithm == AS_REFERENCE:
            return ()
        return self.forms.get(algorithm or "", self.forms.get("", ()))

    def reduced_axis(self, case: Case) -> int | None:
        """Return the reduced axis of the case's leading tensor, negative, or None.

        None too where only other tensors have it, as the keys of attention.
        """
        spec = case.lead
        if self.dim is not None:
            rank = len(spec.shape)
            axis = int(case.scalars.get(self.dim, self.default_of(self.dim)))
            return axis if axis < 0 else axis - rank
        if isinstance(self.reduced, str):
            if self.reduced not in spec.axes:
                return None
            return spec.axes.index(self.reduced) - len(spec.axes)
        return self.reduced

    def reduced_size(self, case: Case) -> int | None:
        """Return the size of the reduced axis, None where nothing is reduced."""
        if self.dim is None and isinstance(self.reduced, str):
            return case.dims.get(self.reduced)
        axis = self.reduced_axis(case)
        return None if axis is None else case.lead.shape[axis]

    def _remaining_axes(self, case: Case) -> tuple[str, ...]:
        """Return the leading tensor's axes but the reduced one."""
        axes, reduced = case.lead.axes, self.reduced_axis(case)
        if reduced is None or not -len(axes) <= reduced < 0:
            return axes
        return (*axes[: len(axes) + reduced], *axes[len(axes) + reduced + 1 :])

    def dtype_of(self, case: Case) -> str:
        """Return the declared dtype that a case takes; its first one if it takes none.

        That of the first floating argument without a dtype of its own; float32 where
        none is floating.
        """
        free = (n for n, p in self.tensors.items() if p.kind == "float" and not p.dtype)
        found = (case.tensors[n].dtype for n in free if n in case.tensors)
        own = case.data.dtype
        return next(found, own if DTYPES[own].kind == "float" else "float32")

    def widest(self, case: Case) -> int:
        """Return the most named dimensions that a "*" tensor of the case has."""
        passed = (self.tensors[name] for name in case.tensors)
        return widest(passed)

    def spaces(self, case: Case) -> tuple[tuple[str, ...], ...]:
        """Return the dimensions that the workspaces have in a case."""
        shared = (
            [axis for axis in spec.axes if axis not in self.tensors[name].names]
            for name, spec in case.tensors.items()
            if self.tensors[name].variadic and not self.tensors[name].without
        )
        others = next(shared, [])
        return tuple(placed(dims, others) for dims in self.workspaces)

    def default_of(self, scalar: str) -> Any:
        """Return the default value of a scalar parameter."""
        return self.scalars[scalar].default

    def accepts(self, case: Case, declaration: Declaration) -> bool:
        """Whether a case lies in the operator's and the kernel's domain."""
        if tuple(case.tensors) != tuple(n for n in self.tensors if n in case.tensors):
            return False
        for items in self.lists.values():
            given = [name in case.tensors for name in items]
            if given != sorted(given, reverse=True):
                return False
        sizes: dict[str, int] = {}
        widest = self.widest(case)
        ranks = self.ranks if declaration.ranks is None else declaration.ranks
        for name, spec in case.tensors.items():
            parameter = self.tensors[name]
            index = parameter if isinstance(parameter, IndexParameter) else None
            dtypes = declaration.index_dtypes if index else declaration.dtypes
            if parameter.dtype:
                dtypes = (parameter.dtype,)
            if spec.problem() is not None or spec.dtype not in dtypes:
                return False
            if not declaration.reaches(spec.span):
                return False
            if spec.below != (index.below if index else ""):
                return False
            if spec.domain != parameter.domain:
                return False
            steps = zip(spec.shape, spec.element_strides, strict=True)
            if not parameter.repeats and any(n > 1 and not step for n, step in steps):
                return False
            if not parameter.takes(spec.axes):
                return False
            missing = widest - len(parameter.names) + bool(parameter.without)
            if parameter.without and spec.axes != self._remaining_axes(case):
                return False
            if parameter.variadic and len(spec.shape) + missing not in ranks:
                return False
            for axis, n in zip(spec.axes, spec.shape, strict=True):
                if sizes.setdefault(axis, n) != n:
                    return False
        for name, scalar in self.scalars.items():
            if not isinstance(scalar, DtypeParameter) or name not in case.scalars:
                continue
            if case.scalars[name] not in scalar.values(declaration.dtypes):
                return False
        for name, index in self.indices.items():
            held = case.tensors.get(name)
            if held is None or parsed(index.domain).cuts:
                continue
            if held.numel and case.bound(held) < 1:
                return False  # no index is valid
        rank = len(case.lead.shape)
        if self.dim is not None:
            dim = int(case.scalars.get(self.dim, self.default_of(self.dim)))
            declared = declaration.dims
            if not -rank <= dim < max(rank, 1):
                return False
            if declared is not None and not {dim, dim % rank, dim % rank - rank} & set(
                declared
            ):
                return False
        if not self.empty_reduction and self.reduced_size(case) == 0:
            return False
        claims = [ShapeClass(self.shape_class)] if self.shape_class else []
        if declaration.shape_class is not None:
            claims.append(declaration.shape_class)
        return not claims or all(c.accepts(named_sizes(self, case)) for c in claims)


def padded(function: Callable[..., Any], there: Sequence[bool]) -> Callable[..., Any]:
    """Return a function of some of its tensors, the others being None.

    Args:
        function: takes all by position.
        there: of each, whether it is given.
    """

    def call(*given: Any, **scalars: Any) -> Any:
        rest = iter(given)
        every = [next(rest) if each else None for each in there]
        return function(*every, **scalars)

    return call


def named_sizes(operator: Operator, case: Case) -> dict[str, int]:
    """Return the sizes that a shape class may speak of.

    Besides the case's own dimension names and integer scalars: "N", the size of
    the reduced axis (of the last axis where nothing is reduced), and "M", the
    product of the other axes of the leading tensor, unless the operator uses
    those names.
    """
    spec = case.lead
    sizes = dict(case.dims)
    for name, parameter in operator.scalars.items():
        value = case.scalars.get(name, parameter.default)
        if type(value) is int:
            sizes.setdefault(name, value)
    axis = operator.reduced_axis(case)
    size = operator.reduced_size(case)
    if size is None:
        axis, size = -1, spec.shape[-1] if spec.shape else 1
    rest = 1
    for i, n in enumerate(spec.shape):
        rest *= 1 if axis is not None and i == len(spec.shape) + axis else n
    sizes.setdefault("N", size)
    sizes.setdefault("M", rest)
    return sizes


# Kernels in other forms than a function: they become one once they are bound.


class Form(ABC):
    """What `kfuzz.kernel(...)` takes in place of a function.

    `__name__` is the kernel's name unless another one is given, and `__wrapped__` the
    function that is its code, where it has one in Python.
    """

    __name__: str

    @abstractmethod
    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return the function that an operator's tensors and scalars are passed to.

        Args:
            operator: what it computes.
            declaration: what it claims.
            where: the kernel, for error messages.

        Raises:
            BindingError: if it cannot be the operator's.
        """


def form_of(given: Any) -> Any:
    """Return a callable as it is, operators of a library of the user's as functions.

    Raises:
        BindingError: if one has several overloads, or takes what kernels do not get.
    """
    if isinstance(given, Form):
        return given
    return custom_op(given) or given


# An operator at other ranks: a dimension as several, as none, or as any number.

Shape = tuple[int, ...]
# Volumes in batches with channels; higher ranks are no operators of their own.
_MOST: Final = 5


def _unfolded(
    operator: Operator, name: str, names: Sequence[str], where: str
) -> Operator:
    from kfuzz.numerics.models.functions import Elementwise

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
        forms={
            named: tuple(
                _merging_oracle(form, list(tensors.values()), layout) for form in forms
            )
            for named, forms in operator.forms.items()
        },
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
    from kfuzz.numerics.acceptance import reshaped

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


# Problems of several members: what takes them at once, and one member at a time.
#
# The operators of this package judge each member by itself, whatever the others hold;
# `tests/numerics/test_members.py` holds them to the bits. What users write is asked
# about one member after the other.

_OWN: Final = (
    "kfuzz.contracts.aten.",
    "kfuzz.contracts.operators.",
    "kfuzz.contracts.gradients.bounds",
)


def takes_members(function: Callable[..., Any]) -> bool:
    """Whether an error model or a relation judges all members at once.

    Those of kfuzz's own operators do.
    """
    return str(getattr(function, "__module__", "")).startswith(_OWN)


def batchable(operator: Operator) -> bool:
    """Whether many members cost an operator's acceptance less than one each.

    With an error model of the user's own they do not: it is asked member by member.
    Without one, and under an elementwise budget, the oracle runs once for all members
    if `torch.vmap` can run it.
    """
    from kfuzz.numerics.models.functions import Elementwise

    given = operator.error_model
    return given is None or isinstance(given, Elementwise) or takes_members(given)


def count(problem: Problem) -> int:
    """Return the number of members."""
    return int(next(iter(problem.tensors.values())).shape[0])


def alone(problem: Problem, member: int) -> Problem:
    """Return the problem of one member."""
    tensors = {n: t[member : member + 1] for n, t in problem.tensors.items()}
    return replace(problem, tensors=tensors)


def joined(parts: Sequence[Mapping[str, Acceptance]]) -> dict[str, Acceptance]:
    """Return acceptances of one member each as those of all members.

    Args:
        parts: at least one, of one operator and one declaration, without relations.
    """
    import torch
    from torch import Tensor

    made = {}
    for name, first in parts[0].items():
        column = [part[name] for part in parts]
        fields: dict[str, Any] = {
            field: torch.cat([getattr(a, field) for a in column])
            for field, value in vars(first).items()
            if isinstance(value, Tensor)
        }
        unknown = dict.fromkeys(u for a in column for u in a.unknown)
        fields["unknown"] = tuple(unknown)
        made[name] = replace(first, **fields)
    return made
