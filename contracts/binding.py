"""`kfuzz.kernel`: binds an implementation to an operator, with its declaration."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Unpack, cast, overload

from typing_extensions import ParamSpec, TypeVar

from kfuzz.contracts.operator import (
    Form,
    Operator,
    check_shape_class,
    form_of,
    gathering,
    padded,
)
from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Claims, Declaration, ShapeClass
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import CONTIGUOUS, Case, Fill, TensorSpec
from kfuzz.core.verdict import LIST
from kfuzz.strategies.parameters import IndexParameter, widest

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Arguments:
    """Which of the operator's parameters an implementation takes.

    Attributes:
        tensors: names of the tensor parameters passed, in order.
        scalars: names of the scalar parameters passed by keyword; the others
            are fixed at their defaults and not drawn.
        destinations: names of the outputs whose memory is passed, in the
            operator's order.
        positional: what is passed by position, in order: the tensors, and the
            destinations that come before one; the others are passed by keyword.
        nullable: the optional tensors whose parameter has the default None or, by its
            annotation, takes None: some cases are without them.
    """

    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    destinations: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    nullable: frozenset[str] = frozenset()

    def lacking(self, given: Container[str]) -> tuple[str, ...]:
        """Return the tensors taken that are not among those given, in order."""
        return tuple(name for name in self.tensors if name not in given)


P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)


class BoundKernel(Generic[P, R]):
    """An implementation bound to an operator; calling it calls the function.

    Type checkers and editors see the function's own signature.

    Attributes:
        name: the kernel's name, unique in its module.
        operator: what it computes.
        declaration: what it claims.
        explicit: names of the claims that were written down.
        arguments: which parameters it takes.
        module: name of the module that bound it.
        line: line of the binding in that module.
        top_level: whether it was bound at module level, where importing the
            module binds it again.
        sizes: of dimensions that callers are known to use: drawn besides others.
        tuners: lists of configurations of its own tuners, and the tables in which these
            keep what they have chosen.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        operator: Operator,
        declaration: Declaration,
        explicit: frozenset[str],
        arguments: Arguments,
        module: str = "",
        line: int = 0,
        top_level: bool = False,
    ) -> None:
        # First: attributes of the function's own do not replace those below.
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.operator = operator
        self.declaration = declaration
        self.explicit = explicit
        self.arguments = arguments
        self.module = module
        self.line = line
        self.top_level = top_level
        self.sizes: tuple[int, ...] = ()
        self.tuners: tuple[list[Any] | dict[Any, Any], ...] = ()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the implementation, unchanged."""
        return self.function(*args, **kwargs)

    def taking(self, given: Container[str]) -> Callable[..., Any]:
        """Return what calls the implementation on these of its tensors alone.

        It takes them as `on` does; see `padded` for the others.
        """
        takes = self.arguments
        # What `on` does where it has no destination to name, a frame less.
        call = self.on if takes.destinations else self.function
        if not takes.lacking(given):
            return call
        there = [name in given for name in takes.tensors]
        return padded(call, there + [True] * len(takes.destinations))

    def on(self, /, *given: Any, **scalars: Any) -> Any:
        """Call the implementation on tensors and destinations where it names them.

        Args:
            given: all its tensors in the operator's order, then the destinations.
            scalars: the scalars that it takes.
        """
        takes, function = self.arguments, cast("Callable[..., Any]", self.function)
        if not takes.destinations:
            return function(*given, **scalars)
        named = dict(zip((*takes.tensors, *takes.destinations), given, strict=True))
        positional = [named.pop(name) for name in takes.positional]
        return function(*positional, **named, **scalars)

    def __repr__(self) -> str:
        """Return name and operator."""
        return f"<kfuzz kernel {self.name}: {self.operator.signature_text()}>"


# Bound kernels by the name of the module that bound them, in order.
REGISTRY: Final[dict[str, list[BoundKernel]]] = {}
# The same of monitored functions: loaded where they are named, and not searched else.
MONITORED: Final[dict[str, list[BoundKernel]]] = {}


class Binder(Protocol):
    """Binds an implementation to the operator that `kernel` was given."""

    @overload
    def __call__(self, implementation: Callable[P, R], /) -> BoundKernel[P, R]: ...

    @overload
    def __call__(self, implementation: Form, /) -> BoundKernel: ...


def kernel(
    operator: Operator | str,
    *,
    name: str | None = None,
    gradients: bool | Sequence[str] = False,
    sizes: Sequence[int] = (),
    tuners: Sequence[list[Any] | dict[Any, Any]] = (),
    **claims: Unpack[Claims],
) -> Binder:
    """Bind an implementation to an operator.

    Use it as a decorator, or call it on any callable:
    `kfuzz.kernel(ops.matmul, name="gemm", accumulator="float32")(gemm)`. Operators of
    torch.library and the forms of `kfuzz.targets` can be bound like functions.

    Args:
        operator: the operator that the implementation computes, or its name, "softmax";
            or the name of an overload of torch's, "aten::softmax.int". A function is
            then called as
            torch's dispatcher calls it; it may lack scalars.
        name: the kernel's name; the function's own by default.
        gradients: also bind `<name>.backward`, the gradients of the implementation by
            autograd. A tuple names the arguments; True means every argument in which
            the operator is differentiable. See contracts/README.md.
        sizes: sizes of dimensions that its callers use; drawn besides the sizes at
            which kernels mostly go wrong.
        tuners: where the implementation times configurations by means of its own: their
            lists, which hold one for each case, and the tables in which it keeps what
            was chosen, which are empty during a call. `@triton.autotune` needs none.
        claims: the declaration of the kernel: `dtypes=`, `layouts=`, `accumulator=`, ….
            `kfuzz.core.declaration.Declaration` and contracts/README.md explain each
            keyword, `Claims` lists the accepted values.

    Returns:
        A decorator that returns the implementation as a transparent callable of the
        same signature.

    Raises:
        BindingError: if a claim is unknown or impossible for the operator, if the
            signatures do not match, or if the module already binds the name.
    """
    overload = None
    if isinstance(operator, str) and operator in (own := _operators()):
        operator = own[operator]
    if isinstance(operator, str):
        from kfuzz.contracts.aten.making import find

        overload = find(operator)
        operator = overload.operator
        claims = cast("Any", {**overload.claims, **claims})
    if not isinstance(operator, Operator):
        raise BindingError(
            f"kfuzz.kernel was given {operator!r:.60}, not an operator",
            fix="write @kfuzz.kernel(ops.softmax), with "
            "`from kfuzz.contracts import operators as ops`",
        )
    caller = sys._getframe(1)

    def bind(given: Any) -> BoundKernel:
        module = caller.f_globals.get("__name__", "__main__")
        if overload is not None:
            from kfuzz.contracts.aten.making import form

            given = form(overload, given)
        bound = fit(
            operator,
            given,
            dict(claims),
            name=name,
            module=module,
            line=caller.f_lineno,
            top_level=caller.f_code.co_name == "<module>",
        )
        bound.sizes = _sizes(sizes, f"kernel {bound.name}")
        bound.tuners = tuple(tuners)
        if not all(isinstance(each, list | dict) for each in tuners):
            raise BindingError(
                f"tuners={tuners!r:.60} holds what is no list or dictionary",
                where=f"kernel {bound.name}",
                fix="name those that the tuner reads: tuners=(CONFIGS, _best)",
            )
        siblings = REGISTRY.setdefault(module, [])
        if any(b.name == bound.name for b in siblings) and module != "__main__":
            raise BindingError(
                f"the module binds two kernels named {bound.name!r}",
                where=module,
                fix='give one of them another name: kernel(…, name="…")',
            )
        siblings.append(bound)
        if gradients is not False:
            from kfuzz.contracts.gradients.operators import bind_gradients

            bind_gradients(bound, gradients)
        return bound

    return cast("Binder", bind)


def _operators() -> Mapping[str, Operator]:
    from kfuzz.contracts.operators import OPERATORS  # each of them imports this

    return OPERATORS


def _sizes(given: Sequence[int], where: str) -> tuple[int, ...]:
    """Return sizes that callers are known to use.

    Raises:
        BindingError: if they are no whole numbers of at least 1.
    """
    good = isinstance(given, list | tuple) and all(
        type(n) is int and n >= 1 for n in given
    )
    if not good:
        raise BindingError(
            f"sizes={given!r:.60} are no whole numbers of at least 1",
            where=where,
            fix="write for example sizes=(2048, 4096)",
        )
    return tuple(given)


def fit(
    operator: Operator,
    given: Callable[..., Any] | Form,
    claims: dict[str, Any],
    *,
    name: str | None,
    module: str,
    line: int = 0,
    top_level: bool,
) -> BoundKernel:
    """Return an implementation as a kernel of an operator, registered nowhere.

    Args:
        operator: what it computes.
        given: the implementation.
        claims: its declarations.
        name: the kernel's; the implementation's own by default.
        module: of the binding, as of `BoundKernel`, like line and top_level.
        line: of the binding.
        top_level: whether it is at module level.

    Raises:
        BindingError: as `kernel` does.
    """
    if not callable(given) and not isinstance(given, Form):
        raise BindingError(f"{given!r:.60} is not callable")
    form = form_of(given)
    label = name or getattr(form, "__name__", None)
    if not isinstance(label, str) or not label or label == "<lambda>":
        raise BindingError(
            "the implementation has no name", fix='give one: kernel(…, name="…")'
        )
    where = f"kernel {label}"
    declaration = declared(operator, claims, where)
    if operator.written and "nonfinite" in claims:
        operator = replace(operator, written=declaration.nonfinite != "propagate")
    function = (
        form.fitted(operator, declaration, where) if isinstance(form, Form) else form
    )
    function = gathering(function, tuple(operator.tensors), operator.lists)
    return BoundKernel(
        function,
        name=label,
        operator=operator,
        declaration=declaration,
        explicit=frozenset(claims),
        arguments=match_signature(
            operator, function, where, declaration.out, declaration.configs
        ),
        module=module,
        line=line,
        top_level=top_level,
    )


def declared(operator: Operator, claims: dict[str, Any], where: str) -> Declaration:
    """Return what an implementation of an operator claims, its defaults included.

    Raises:
        BindingError: if a claim is unknown, or impossible for the operator.
    """
    declaration = operator.defaults.declare(where, **claims)
    _check_claims(operator, declaration, claims, where)
    return declaration


def _check_claims(
    operator: Operator, declaration: Declaration, claims: dict[str, Any], where: str
) -> None:
    wrong = partial(BindingError, where=where)
    for dtype in declaration.dtypes:
        if dtype not in operator.dtypes:
            raise wrong(
                f"{operator.name} has no oracle precise enough for {dtype}",
                fix=f"dtypes it can be judged in: {', '.join(operator.dtypes)}",
            )
    if declaration.algorithm and declaration.algorithm not in operator.algorithms:
        listed = ", ".join(
            f'"{name}" ({what})' for name, what in operator.algorithms.items()
        )
        raise wrong(
            f"{operator.name} knows no algorithm {declaration.algorithm!r}",
            fix=f"its algorithms: {listed}" if listed else "it has none to name",
        )
    if (not operator.straying and "out_of_bounds" in claims) or not operator.indices:
        for claim in ("out_of_bounds", "index_dtypes"):
            if claim in claims:
                raise wrong(
                    f"{operator.name} has no index parameter, {claim}= has no meaning"
                )
    elif declaration.out_of_bounds not in operator.out_of_bounds:
        raise wrong(
            f"{operator.name} cannot be judged under "
            f"out_of_bounds={declaration.out_of_bounds!r}",
            fix=f"valid: {', '.join(operator.out_of_bounds)}",
        )
    if operator.dim is None and "dims" in claims:
        raise wrong(f"{operator.name} has no dim parameter, so dims= has no effect")
    if declaration.ranks is not None:
        _check_ranks(operator, declaration.ranks, where)
    for parameter in declaration.inplace:
        if parameter not in operator.tensors:
            raise wrong(
                f"inplace names {parameter!r}, no tensor parameter of "
                f"{operator.signature_text()}"
            )
    lists = [output for output in operator.outputs if output.endswith(LIST)]
    if lists and (declaration.inplace or declaration.out):
        raise wrong(
            f"{operator.name} returns the list {lists[0]}, so it has neither inplace= "
            "nor out=",
            fix="bind a function that returns its results",
        )
    several = max(len(declaration.inplace), len(operator.outputs)) > 1
    for parameter in declaration.inplace if several else ():
        if parameter not in operator.outputs:
            raise wrong(
                f"inplace names {parameter!r}, and no output of {operator.name} is "
                "called so",
                fix="of several results those that are written in place have the names "
                "of their parameters: outputs=('y', 'state'), inplace=('state',)",
            )
    _check_out(operator, declaration, where)
    if isinstance(declaration.shape_class, ShapeClass):
        check_shape_class(operator, declaration.shape_class, where)


def _check_ranks(operator: Operator, ranks: Collection[int], where: str) -> None:
    least = widest(operator.tensors.values(), default=-1)
    if least < 0:
        raise BindingError(
            f'no argument of {operator.name} has a "*", ranks= has no effect',
            where=where,
            fix='for other ranks see unfolded: ops.group_norm.unfolded(L="*")',
        )
    known = [rank for rank in operator.ranks if rank >= least]
    if not set(ranks) <= set(known):
        raise BindingError(
            f"ranks={tuple(ranks)!r}: {operator.name} has the ranks {known}",
            where=where,
        )


def _check_out(operator: Operator, declaration: Declaration, where: str) -> None:
    wrong = partial(BindingError, where=where)
    if not declaration.out:
        return
    if declaration.inplace and len(operator.outputs) == 1:
        raise wrong("a kernel is either inplace or has an out")
    left = [n for n in operator.outputs if n not in declaration.inplace]
    listed = ", ".join(map(repr, left))
    if sorted(declaration.out) != sorted(left):
        raise wrong(
            f"out={declaration.out!r} is not what {operator.name} gives",
            fix=f"name every output: out=({listed},)",
        )
    clash = [name for name in declaration.out if name in operator.inputs]
    if clash:
        raise wrong(f"{clash[0]!r} names an input of {operator.signature_text()} too")


def match_signature(
    operator: Operator,
    function: Callable[..., Any],
    where: str,
    out: tuple[str, ...] = (),
    configs: Sequence[Mapping[str, object]] = (),
) -> Arguments:
    """Return which parameters of the operator an implementation takes.

    Tensors are passed positionally in the operator's order, scalars by keyword.
    Scalars and optional tensors may be omitted; parameters of the
    implementation's own need defaults, unless every configuration gives them. A
    destination, named by `out`, is passed to the parameter of its name. An optional
    tensor whose parameter has the default None, or takes None by its annotation, is
    left out of some calls.

    Raises:
        BindingError: printing both signatures, on any other mismatch.
    """
    tensors, scalars = operator.tensors, operator.scalars
    own = {name for config in configs for name in config}
    given = {name for name in own if all(name in config for config in configs)}
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        # A builtin without a signature (torch.softmax, say) takes everything.
        wanted = tuple(n for n in operator.outputs if n in out)
        return Arguments(tuple(tensors), tuple(scalars), wanted, tuple(tensors))
    name = getattr(function, "__name__", "implementation")
    wrong = partial(
        _mismatch, f"{name}{signature}", operator.signature_text(), where=where
    )
    kinds = inspect.Parameter
    positional: list[inspect.Parameter] = []
    keywords: set[str] = set()
    takes_any = False
    for p in signature.parameters.values():
        if p.kind is kinds.VAR_KEYWORD:
            takes_any = True
        elif p.name in out:
            continue
        elif p.name in own and p.name not in operator.inputs:
            if p.default is kinds.empty and p.name not in given:
                why = f"{p.name!r} is needed, and not in every configuration"
                raise wrong(why)
        elif p.kind is kinds.VAR_POSITIONAL:
            positional += [p] * (len(tensors) - len(positional))
        elif p.name in scalars and p.kind is not kinds.POSITIONAL_ONLY:
            keywords.add(p.name)
        elif p.kind is kinds.KEYWORD_ONLY:
            if p.default is kinds.empty:
                raise wrong(f"{p.name!r} is needed")
        elif p.default is kinds.empty or p.name in tensors:
            positional.append(p)
    if len(positional) > len(tensors):
        extra = positional[len(tensors)].name
        raise wrong(f"{extra!r} is no parameter of {operator.name} and has no default")
    names = tuple(tensors)[: len(positional)]
    missing = [n for n, p in tensors.items() if n not in names and not p.optional]
    if missing:
        raise wrong(f"takes no tensor for {missing[0]!r}")
    passed = tuple(scalars) if takes_any else tuple(n for n in scalars if n in keywords)
    lacking = [n for n in out if n not in signature.parameters and not takes_any]
    if lacking:
        raise wrong(f"it has no parameter for its destination {lacking[0]!r}")
    wanted = tuple(n for n in operator.outputs if n in out)
    named = {*signature.parameters, *(own if takes_any else ())}
    foreign = [n for n in sorted(own) if n in operator.inputs or n in out]
    foreign += [n for n in sorted(own) if n not in named]
    if foreign:
        raise wrong(f"{foreign[0]!r} of configs= is no keyword of its own")
    order = _positions(signature, names, wanted, own)
    if any(n in own for n in order):
        first = next(n for n in order if n in own)
        raise wrong(f"{first!r} of configs= stands before a tensor")
    absent = zip(names, positional, strict=True)
    nullable = {n for n, p in absent if tensors[n].optional and _takes_none(p)}
    return Arguments(names, passed, wanted, order, frozenset(nullable))


_NONE: Final = re.compile(r"\|\s*None\b|\bNone\s*\||\bOptional\[|\bUnion\[.*\bNone\b")


def _takes_none(parameter: inspect.Parameter) -> bool:
    """Whether a parameter says that it takes None, by its default or annotation."""
    given = parameter.annotation
    if isinstance(given, str):  # where its module has annotations be texts
        return parameter.default is None or _NONE.search(given) is not None
    return parameter.default is None or type(None) in getattr(given, "__args__", ())


def _positions(
    signature: inspect.Signature,
    tensors: tuple[str, ...],
    wanted: tuple[str, ...],
    own: Set[str],
) -> tuple[str, ...]:
    """Return what is passed by position, in order; see `Arguments.positional`.

    A keyword of its own that stands before a tensor is among it.
    """
    order, left = [], list(tensors)
    for p in signature.parameters.values():
        if p.name in wanted or p.name in own:
            if left or p.kind is inspect.Parameter.POSITIONAL_ONLY:
                order.append(p.name)
        elif left and p.kind is not inspect.Parameter.VAR_POSITIONAL:
            order.append(left.pop(0))
        else:
            order += left
            left = []
    return tuple(order + left)


def _mismatch(have: str, wanted: str, why: str, *, where: str) -> BindingError:
    return BindingError(
        f"the implementation is {have}, the operator is {wanted}: {why}",
        where=where,
        fix="tensors are passed positionally in the operator's order, scalars by "
        "keyword; parameters of your own need defaults",
    )


# Cases derived from a failing one, to find out what the failure depends on.

# (sizes outside the reduced axis, size of the reduced axis): what benchmarks and
# functional tests use, within the budget of every backend.
LADDER: Final = (
    (4, 4), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256),
    (4, 16), (4, 64), (4, 128), (4, 256), (4, 512), (4, 1024), (4, 4096),
)  # fmt: skip
# Recentred data keeps to this magnitude: far from overflow of exp and of squares.
MODERATE: Final = 4.0


@dataclass(frozen=True)
class Derived:
    """A case with its logical values at hand.

    Attributes:
        case: a recipe, contiguous.
        values: logical elements by argument, contiguous, in the case's dtypes.
    """

    case: Case
    values: Mapping[str, Tensor]


def friendly_shapes(
    operator: Operator, case: Case, declaration: Declaration, budget: SizeBudget
) -> Iterator[Case]:
    """Yield contiguous cases of normal data, uniform indices, at friendly shapes.

    The usual rank or the nearest, of indices 1 (the operator's own where it is fixed),
    the reduced axis last, dimensions with a usual size at that, scalars as in `case`;
    only shapes within the declaration and the budget.
    """
    rank = _friendly_rank(operator, declaration)
    for rows, n in LADDER:
        tensors = {}
        chosen = {
            name: _friendly(operator, name, rank, rows, n) for name in case.tensors
        }
        every = {
            axis: size for sizes in chosen.values() for axis, size in sizes.items()
        }
        every = operator.settled(every, case)
        for seed, (name, spec) in enumerate(case.tensors.items()):
            axes = tuple(chosen[name])
            shape = tuple(every[axis] for axis in axes)
            fill = Fill(_ordinary(operator, name, "randn"), seed=0xF00D + 31 * seed + n)
            tensors[name] = _resized(spec, shape, axes, fill)
        scalars = dict(case.scalars)
        if operator.dim is not None and operator.dim in scalars:
            scalars[operator.dim] = _last_dim(declaration)
        made = Case(tensors, scalars, layout=CONTIGUOUS)
        spaces = operator.spaces(made)
        sizes = [math.prod(made.dims[axis] for axis in axes) for axes in spaces]
        sizes += [s.numel for s in tensors.values()]
        large = max(sizes) > budget.elements
        if not large and rows <= budget.rows and operator.accepts(made, declaration):
            yield made


def _resized(
    spec: TensorSpec, shape: tuple[int, ...], axes: tuple[str, ...], fill: Fill
) -> TensorSpec:
    return TensorSpec(
        shape, axes, spec.dtype, fill=fill, below=spec.below, domain=spec.domain
    )


def ordinary_cases(operator: Operator, case: Case) -> Iterator[Case]:
    """Yield the case's shapes and layouts with ordinary data of three kinds."""
    for kind, family in enumerate(("randn", "negative", "uniform01")):
        tensors = {}
        for seed, (name, spec) in enumerate(case.tensors.items()):
            drawn = _ordinary(operator, name, family)
            fill = Fill(drawn, seed=0xBEAD + 31 * seed + kind)  # integers differ, too
            tensors[name] = replace(spec, fill=fill, values=None, plants=())
        yield replace(case, tensors=tensors)


def sized(
    operator: Operator, case: Case, sizes: Mapping[str, int], family: str = "randn"
) -> Case:
    """Return a contiguous case of ordinary data with other sizes of some dimensions."""
    every = operator.settled({**case.dims, **sizes}, case)
    tensors = {}
    for seed, (name, spec) in enumerate(case.tensors.items()):
        shape = tuple(every[axis] for axis in spec.axes)
        fill = Fill(_ordinary(operator, name, family), seed=0x512E + 31 * seed)
        tensors[name] = _resized(spec, shape, spec.axes, fill)
    layout = None if case.layout is None else CONTIGUOUS
    return replace(case, tensors=tensors, layout=layout, edge=None)


def with_ordinary_values(
    operator: Operator, case: Case, dtype: str, *, plain: bool
) -> Case:
    """Return a case with normal numbers in a dtype; indices and masks are its own.

    Args:
        operator: what is to be computed.
        case: with shapes, layouts, indices and masks.
        dtype: of the floats that have that of the case's data.
        plain: whether weights are 1 and biases 0.
    """
    tensors = {}
    for seed, (name, spec) in enumerate(case.tensors.items()):
        parameter = operator.tensors[name]
        tensors[name] = spec
        if parameter.kind != "float" or parameter.role == "mask":
            continue
        family = _ordinary(operator, name, "randn")
        if plain and parameter.role in ("weight", "bias"):
            family = "ones" if parameter.role == "weight" else "zeros"
        fill = Fill(family, seed=0xC0DE + 31 * seed)
        own = spec.dtype if parameter.dtype or spec.dtype != case.data.dtype else dtype
        tensors[name] = replace(spec, dtype=own, fill=fill, values=None, plants=())
    return replace(case, tensors=tensors)


def holds(operator: Operator, failing: Case, friendly: Case) -> bool:
    """Whether a friendly case has room for the failing values along the reduced axis.

    Where it has not, tiling cuts them off, and passing there shows little: such
    shapes count only for cases larger than all friendly ones.
    """
    wanted = operator.reduced_size(failing)
    if wanted is None:
        return True
    have = operator.reduced_size(friendly)
    assert have is not None
    return have >= wanted or wanted > max(n for _, n in LADDER)


def tiled(operator: Operator, failing: Derived, friendly: Case) -> Derived:
    """Return the friendly case filled with the failing values, repeated.

    They end as the failing ones do: what is wrong of a tail is wrong at the end.
    Indices that are not below their new bound are taken modulo it.
    """
    import torch

    values = {}
    for name, spec in friendly.tensors.items():
        given, rank = failing.values[name], len(spec.shape)
        # One that has only other sizes is no grid of another rank.
        alike = (
            friendly.scalars == failing.case.scalars and len(spec.shape) == given.ndim
        )
        grid = given if alike else _as_grid(operator, failing.case, name, given, rank)
        # Cut first: nothing on the way is larger than the friendly tensor.
        grid = grid[tuple(slice(n) for n in spec.shape)]
        for axis, n in enumerate(spec.shape):
            have = grid.shape[axis]
            index = (torch.arange(n, device=grid.device) - n) % max(have, 1)
            grid = (
                grid.index_select(axis, index) if have else grid.new_zeros(spec.shape)
            )
        if spec.below:
            bound = max(friendly.bound(spec), 1)
            grid = torch.where(grid < bound, grid, grid % bound)
        values[name] = grid.contiguous()
    return Derived(friendly, operator.fitted(friendly, values))


def as_contiguous(failing: Derived) -> Derived | None:
    """Return the case with contiguous tensors; None if they are so already."""
    specs, layout = failing.case.tensors, failing.case.layout
    plain_layout = layout in (None, CONTIGUOUS)
    if plain_layout and all(s.is_contiguous and not s.offset for s in specs.values()):
        return None
    plain = {n: replace(s, strides=None, offset=0) for n, s in specs.items()}
    layout = None if layout is None else CONTIGUOUS
    made = replace(failing.case, tensors=plain, layout=layout)
    return Derived(made, failing.values)


def recentred(operator: Operator, failing: Derived) -> Derived | None:
    """Return the case with its first data shifted to mean 0 and scaled down.

    Rows along the reduced axis, or of a whole group; None where that cannot be done
    (nothing is reduced, the values are not finite), or where neither their magnitude
    nor their mean stands out.
    """
    import torch

    axis = operator.reduced_axis(failing.case)
    name = next(n for n, s in failing.case.tensors.items() if s is failing.case.data)
    x = failing.values[name].to(torch.float64)
    if axis is None or x.numel() == 0 or not bool(torch.isfinite(x).all()):
        return None
    centred = x - _row_means(operator, failing.case, x, axis)
    top, greatest = float(centred.abs().max()), float(x.abs().max())
    if greatest <= MODERATE * top and greatest <= 2 * MODERATE:
        return None
    scale = 1.0
    while top * scale > MODERATE:
        scale /= 2
    moderate = (centred * scale).to(failing.values[name].dtype)
    made = {**failing.values, name: moderate.contiguous()}
    return replace(failing, values=operator.fitted(failing.case, made))


def moderated(operator: Operator, failing: Derived) -> Derived | None:
    """Return the case with no number of great magnitude.

    Arguments that have one are scaled down by a power of two, the first data recentred
    too where the operator lets it be; masks and indices stay. None where nothing would
    change.
    """
    import torch

    made = dict((recentred(operator, failing) or failing).values)
    for name, x in made.items():
        parameter = operator.tensors[name]
        if parameter.kind != "float" or parameter.role == "mask" or not x.numel():
            continue
        wide = x.to(torch.float64)
        top = float(wide.abs().max())
        if MODERATE < top < math.inf:
            made[name] = (wide * 2.0 ** -math.frexp(top)[1]).to(x.dtype)
    made = operator.fitted(failing.case, made)
    same = all(_equal(made[n], failing.values[n]) for n in made)
    return None if same else replace(failing, values=made)


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold equal numbers; torch compares none of 8 bits."""
    import torch

    if a.is_floating_point() and a.element_size() == 1:
        a, b = a.float(), b.float()
    return torch.equal(a, b)


def _row_means(operator: Operator, case: Case, x: Tensor, axis: int) -> Tensor:
    """Return the mean of each element's row, in a shape that fits the data."""
    import torch

    if not operator.groups:
        return x.mean(axis, keepdim=True)
    default = operator.default_of(operator.groups)
    count = int(case.scalars.get(operator.groups, default))
    grouped = torch.unflatten(x, axis - 1, (count, -1))
    means = grouped.mean((axis - 1, axis), keepdim=True)
    return means.expand_as(grouped).flatten(axis - 2, axis - 1)


def _ordinary(operator: Operator, name: str, family: str) -> str:
    """Return the family of ordinary values that an argument gets among others'."""
    parameter = operator.tensors[name]
    if isinstance(parameter, IndexParameter):
        return "index_uniform"
    if parameter.kind != "float":
        return "bool_random" if parameter.kind == "bool" else "int_uniform"
    return "uniform01" if parameter.role == "variance" else family


def _friendly(
    operator: Operator, name: str, rank: int, rows: int, n: int
) -> dict[str, int]:
    """Return the sizes of a tensor's dimensions, in order.

    Args:
        operator: what is to be computed.
        name: of the parameter.
        rank: of the "*" tensors of most names; one of indices is flat.
        rows: the size of the others.
        n: the size of the reduced one.
    """
    parameter = operator.tensors[name]
    count = rank - widest(operator.tensors.values()) if parameter.variadic else 0
    long = {operator.reduced if isinstance(operator.reduced, str) else f"d{rank - 1}"}
    if operator.indices and operator.reduced is None:
        # Nothing is reduced: the last dimension of every tensor.
        long = {p.names[-1] for p in operator.tensors.values() if p.names}
    if name in operator.indices or parameter.without:
        count = 1 - len(parameter.names)
    axes = parameter.axes([f"d{i}" for i in range(count)])
    sizes = {axis: n if axis in long else rows for axis in axes}
    return sizes | {a: size for a, size in operator.usual.items() if a in sizes}


def _friendly_rank(operator: Operator, declaration: Declaration) -> int:
    """Return the rank nearest to the usual one that the kernel takes."""
    ranks = operator.ranks if declaration.ranks is None else declaration.ranks
    least, usual = widest(operator.tensors.values()), operator.usual_rank
    valid = (rank for rank in ranks if rank >= least)
    return min(valid, key=lambda rank: abs(rank - usual), default=usual)


def _as_grid(
    operator: Operator, case: Case, name: str, values: Tensor, rank: int
) -> Tensor:
    """Return a "*" tensor in a rank: what "*" stands for as one dimension, or merged.

    One of no names is [rows, reduced axis] where the rank allows, one of indices flat.
    Others are unchanged.
    """
    parameter = operator.tensors[name]
    if not parameter.variadic:
        return values
    if name in operator.indices or parameter.without:
        return values.reshape(-1)
    axes, names = case.tensors[name].axes, parameter.names
    count = rank - len(names)
    if not names and count > 1:
        axis = operator.reduced_axis(case)
        moved = values.reshape(values.shape or (1,)).movedim(axis or -1, -1)
        n = moved.shape[-1]
        rows = moved.numel() // n if n else 0
        return moved.reshape(*(1,) * (count - 2), rows, n)
    if not names and not count:
        return values.reshape(-1)[:1].sum().to(values.dtype)
    places = [i for i, axis in enumerate(axes) if axis not in names]
    named = [axes.index(axis) for axis in names]
    sizes = [values.shape[i] for i in named]
    grouped = values.permute(*places, *named)
    rows = math.prod(values.shape[i] for i in places)
    if not count:  # with the first of those named
        return grouped.reshape(rows * sizes[0], *sizes[1:])
    grid = grouped.reshape(*(1,) * (count - 1), rows, *sizes)
    others = [f"_{i}" for i in range(count)]
    have = (*others, *names)
    return grid.permute([have.index(axis) for axis in parameter.axes(others)])


def _last_dim(declaration: Declaration) -> int:
    return -1 if declaration.dims is None or -1 in declaration.dims else 1
