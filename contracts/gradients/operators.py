"""From an operator to the operator of its gradients."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import groupby
from pkgutil import iter_modules
from typing import Any, Final

from kfuzz.contracts.gradients import rules
from kfuzz.contracts.gradients.bounds import RuleBound, given_of, plain
from kfuzz.contracts.gradients.by_autograd import AutogradBound, vector_jacobian
from kfuzz.contracts.gradients.rules import PREFIX, Rule
from kfuzz.contracts.gradients.rules import RULES as RULES
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, UsageError, suggestion
from kfuzz.core.results import LIST
from kfuzz.core.shape_class import ShapeClass
from kfuzz.strategies.parameters import (
    DtypeParameter,
    IndexParameter,
    ScalarParameter,
    TensorParameter,
    widest,
)

# Each module of rules enters its own.
for _module in iter_modules(rules.__path__):
    import_module(f"{rules.__name__}.{_module.name}")

DTYPES: Final = ("float32", "float16", "bfloat16")
_HOME: Final = "kfuzz.contracts.operators."
_BACKWARD: Final = ".backward"
_SPECIAL: Final = (
    "a gradient that is not finite is not judged, nor is one of arguments with a NaN "
    'or an infinity; with nonfinite="propagate" a NaN in the gradient of an output '
    "reaches what depends on it"
)
# Distinct sizes from which the dimensions of a result are recognised.
_SIZES: Final = (3, 5, 7, 11, 13, 17, 19, 23)


def operator_named(name: str, where: str) -> Operator:
    """Return an operator of kfuzz's by its name, "softmax.backward" for gradients.

    Args:
        name: the name.
        where: what asks, for the message.

    Raises:
        UsageError: if there is none.
    """
    from kfuzz.contracts.operators import OPERATORS

    stem = name.removesuffix(_BACKWARD)
    if stem not in OPERATORS:
        fix = suggestion(stem, OPERATORS)
        raise UsageError(f"no operator {name!r}", where=where, fix=fix)
    return OPERATORS[stem] if stem == name else gradients_of(OPERATORS[stem])[""]


def gradients_of(
    operator: Operator,
    wanted: bool | Sequence[str] = True,
    *,
    tensors: Sequence[str] | None = None,
    scalars: Collection[str] | None = None,
) -> dict[str, Operator]:
    """Return the operators of an operator's gradients, by suffix of their names.

    One takes the operator's tensors and the gradient of each differentiable output,
    and gives the gradient with respect to each wanted argument. There are several where
    the shape of an output depends on a scalar.

    Args:
        operator: the forward operator.
        wanted: the arguments; True for all that it is differentiable in.
        tensors: those that the implementation takes; all by default.
        scalars: the same of scalars; others stay at their defaults.

    Raises:
        BindingError: if it has no gradients that can be judged, or an argument is none
            that it is differentiable in.
    """
    taken = tuple(operator.tensors) if tensors is None else tuple(tensors)
    known = tuple(operator.scalars) if scalars is None else tuple(scalars)
    where = f"operator {operator.name}"
    rule = rule_of(operator)
    if rule is None and _is_own(operator):
        raise BindingError(
            f"{operator.name} has no gradients that kfuzz judges",
            where=where,
            fix=f"operators that have: {', '.join(sorted(RULES))}",
        )
    possible = _differentiable(operator, rule, taken)
    names = _chosen(wanted, possible, where)
    if rule is None:
        recognised = _recognised(operator, taken, where)
        return {"": _by_autograd(operator, taken, names, recognised)}
    variants = rule.variants or {"": ({}, next(iter(rule.outputs.values())))}
    found = {}
    for suffix, (limits, dims) in variants.items():
        inputs = _limited(operator, limits, known)
        if inputs is None:
            continue
        outputs = {"y": dims} if rule.variants else dict(rule.outputs)
        found[suffix] = _ruled(
            replace(operator, inputs=inputs), rule, taken, names, outputs
        )
    if list(found) and "" not in found:
        found = {"": next(iter(found.values()))}
    return found


def rule_of(operator: Operator) -> Rule | None:
    """Return the rule of one of kfuzz's own operators; None for others."""
    return RULES.get(operator.name) if _is_own(operator) else None


def _is_own(operator: Operator) -> bool:
    return str(getattr(operator.oracle, "__module__", "")).startswith(_HOME)


def _differentiable(
    operator: Operator, rule: Rule | None, taken: Sequence[str]
) -> tuple[str, ...]:
    if rule is not None:
        return tuple(name for name in taken if name in rule.inputs)
    floats = operator.tensors.items()
    return tuple(
        name
        for name, p in floats
        if name in taken and p.kind == "float" and not p.dtype and p.role != "mask"
    )


def _chosen(
    wanted: bool | Sequence[str], possible: tuple[str, ...], where: str
) -> tuple[str, ...]:
    if wanted is True:
        listed = possible
    else:
        given: Any = (wanted,) if isinstance(wanted, str) else wanted
        valid = isinstance(given, tuple | list | set | frozenset)
        if not valid or not all(isinstance(n, str) for n in given):
            raise BindingError(
                f"gradients={wanted!r} is neither True nor names of arguments",
                where=where,
            )
        for name in given:
            if name not in possible:
                raise BindingError(
                    f"gradients names {name!r}, no argument that is differentiated",
                    where=where,
                    fix=suggestion(name, possible),
                )
        listed = tuple(name for name in possible if name in given)
    if not listed:
        raise BindingError("gradients names no argument", where=where)
    return listed


def _limited(
    operator: Operator,
    limits: Mapping[str, tuple[Any, ...]],
    known: Collection[str],
) -> dict[str, Any] | None:
    """Return the parameters with some scalars limited; None if none is left."""
    inputs = dict(operator.inputs)
    for name, values in limits.items():
        parameter = inputs[name]
        assert isinstance(parameter, ScalarParameter)
        every = (parameter.default, *(parameter.domain if name in known else ()))
        left = tuple(v for v in dict.fromkeys(every) if v in values)
        if not left:
            return None
        inputs[name] = replace(parameter, default=left[0], domain=left)
    return inputs


def _ruled(
    operator: Operator,
    rule: Rule,
    taken: tuple[str, ...],
    names: tuple[str, ...],
    outputs: Mapping[str, str],
) -> Operator:
    every = (*taken, *(PREFIX + output for output in outputs))

    def product(*tensors: Any, **scalars: Any) -> tuple[Any, ...]:
        made = plain(rule.formula(given_of(every, tensors, scalars)), names)
        return tuple(
            x.expand(tensors[every.index(n)].shape)
            for n, x in zip(names, made, strict=True)
        )

    return _operator(
        operator,
        taken,
        names,
        {output: (dims, rule.lacks) for output, dims in outputs.items()},
        product,
        "The vector-Jacobian product of the operator, in plain torch.",
        error_model=RuleBound(f"{operator.name}.backward", rule, names),
        bound=rule.bound,
        derivation="sums, products and moves of what was given have their own bounds; "
        "else the running-error shadow of the rule times 4: recomputed from the "
        "arguments or from the forward result as it was stored",
        relation=rule.accept,
    )


def _by_autograd(
    operator: Operator,
    taken: tuple[str, ...],
    names: tuple[str, ...],
    outputs: Mapping[str, tuple[str, str, int]],
) -> Operator:
    product = vector_jacobian(
        operator.oracle,
        arguments=len(taken),
        places=[place for _, _, place in outputs.values()],
        wanted=[taken.index(n) for n in names],
    )
    made = _operator(
        operator,
        taken,
        names,
        {output: (dims, lacks) for output, (dims, lacks, _) in outputs.items()},
        product,
        "The oracle's vector-Jacobian product, by autograd.",
        error_model=AutogradBound(f"{operator.name}.backward", product, names),
        bound="as the shadow's of the oracle and of its derivative by autograd, each "
        "result stored",
        derivation="four times what the running-error shadow derives step by step, "
        "with each result of the forward and of the backward pass rounded to the "
        "output's format",
    )
    _require_differentiable(made, operator, taken, names)
    return made


def _operator(
    operator: Operator,
    taken: tuple[str, ...],
    names: tuple[str, ...],
    outputs: Mapping[str, tuple[str, str]],
    product: Callable[..., tuple[Any, ...]],
    doc: str,
    *,
    error_model: Any,
    bound: str,
    derivation: str,
    relation: Any = None,
) -> Operator:
    """Return the operator of the gradients.

    Args:
        operator: the forward operator.
        taken: its tensors that the implementation takes.
        names: the arguments whose gradients are wanted.
        outputs: dimensions, and the parameter of the axis that is lacking, by output.
        product: the gradients, of the tensors taken and the outputs' gradients.
        doc: what it is, in words.
        error_model: of the gradients.
        bound: the same in words.
        derivation: why that holds.
        relation: between the gradients, if any.
    """

    def oracle(*tensors: Any, **scalars: Any) -> Any:
        made = product(*tensors, **scalars)
        return made if len(made) > 1 else made[0]

    oracle.__doc__ = doc
    tensors = {n: operator.tensors[n] for n in taken}
    for output, (dims, lacks) in outputs.items():
        tensors[PREFIX + output] = TensorParameter(dims, without=lacks)
    gradients = ", ".join(f"d{n}" for n in names)
    return Operator(
        f"{operator.name}.backward",
        inputs={**tensors, **operator.scalars},
        oracle=oracle,
        error_model=error_model,
        relation=relation,
        outputs=tuple(f"d{n}" for n in names),
        ranks=operator.ranks,
        usual_rank=operator.usual_rank,
        reduced=operator.reduced,
        shape_class=operator.shape_class,
        homogeneous={" ".join(PREFIX + output for output in outputs): 1},
        workspaces=operator.workspaces,
        usual=operator.usual,
        defaults=replace(operator.defaults, subnormals="any"),
        dtypes=tuple(d for d in operator.dtypes if d in DTYPES),
        empty_reduction=operator.empty_reduction,
        subtracts_mean=operator.subtracts_mean,
        out_of_bounds=("undefined",) if operator.indices else ("raise", "undefined"),
        forward=operator,
        tolerance=Tolerance(Structure.INTERVAL, f"of {gradients}: {bound}", derivation),
        special_values=_SPECIAL,
    )


def _recognised(
    operator: Operator, taken: tuple[str, ...], where: str
) -> dict[str, tuple[str, str, int]]:
    """Return each floating output's dimensions, what it lacks, and its place.

    The oracle is run once, on arguments whose dimensions all have other sizes.

    Raises:
        BindingError: if the dimensions of a result are none of the arguments'.
    """
    import torch

    if lists := [output for output in operator.outputs if output.endswith(LIST)]:
        raise BindingError(f"gradients= of the list {lists[0]}", where=where)
    sizes = _sizes(operator, taken)
    example = _example(operator, taken, sizes)
    scalars = {n: p.default for n, p in operator.scalars.items()}
    try:
        with torch.no_grad():
            returned = operator.oracle(*example, **scalars)
    except Exception as error:
        raise BindingError(
            f"its oracle, run once, raises {type(error).__name__}: {error}"[:300],
            where=where,
            fix="gradients= needs an oracle that takes arguments of any declared size",
        ) from None
    results = returned if isinstance(returned, tuple | list) else (returned,)
    by_size = {n: axis for axis, n in sizes.items()}
    lead = next(
        p for p in operator.tensors.values() if not isinstance(p, IndexParameter)
    )
    leading = tuple(a for a in sizes if a.startswith("_"))
    found = {}
    for place, (name, y) in enumerate(zip(operator.outputs, results, strict=False)):
        if name in operator.integers or not y.is_floating_point():
            continue
        axes = tuple(by_size.get(n, "?") for n in y.shape)
        text, lacks = " ".join(axes), ""
        if leading and tuple(a for a in axes if a in leading) == leading:
            starred = ("*" if a in leading else a for a in axes)
            text = " ".join(token for token, _ in groupby(starred))
        elif operator.dim is not None and lead.dims == "*":
            axis = int(operator.default_of(operator.dim)) % len(leading)
            if axes == (*leading[:axis], *leading[axis + 1 :]):
                text, lacks = "*", operator.dim
        if "?" in axes or "_" in text:
            raise BindingError(
                f"the dimensions of {name}, {list(y.shape)} for "
                f"{sizes}, are none of the arguments'",
                where=where,
                fix="gradients= needs outputs whose dimensions the arguments have",
            )
        found[name] = (text, lacks, place)
    if not found:
        raise BindingError("it has no floating output", where=where)
    return found


def _sizes(operator: Operator, taken: Sequence[str]) -> dict[str, int]:
    """Return a size of its own for each dimension, those of "*" as "_0" and "_1"."""
    parameters = [operator.tensors[name] for name in taken]
    named = dict.fromkeys(axis for p in parameters for axis in p.names)
    most = widest(parameters, default=3)
    leading = max(3 - most, 1) if any(p.variadic for p in parameters) else 0
    every = [*(f"_{i}" for i in range(leading)), *named]
    for start in range(64):
        sizes = dict(zip(every, _distinct(len(every), start), strict=True))
        if not operator.shape_class:
            return sizes
        scalars = {
            n: p.default for n, p in operator.scalars.items() if type(p.default) is int
        }
        shape_class = ShapeClass(operator.shape_class)
        sizes = shape_class.settled(sizes, scalars)
        if shape_class.admits({**scalars, **sizes}):
            return sizes
    return dict(zip(every, _distinct(len(every), 0), strict=True))


def _distinct(count: int, start: int) -> Iterator[int]:
    """Yield different sizes; primes, or their doubles, in an order of their own."""
    pool = list(_SIZES) if not start else [n * (2 if start & 1 else 1) for n in _SIZES]
    turned = pool[start % len(pool) :] + pool[: start % len(pool)]
    for i in range(count):
        yield turned[i % len(turned)] + len(turned) * 8 * (i // len(turned))


def _example(
    operator: Operator, taken: Sequence[str], sizes: Mapping[str, int]
) -> list[Any]:
    """Return float64 numbers of these sizes, index 0, and integers of their domain."""
    import torch

    from kfuzz.numerics.domains import fitted

    leading = [a for a in sizes if a.startswith("_")]
    made = []
    for name in taken:
        parameter = operator.tensors[name]
        shape = [sizes[a] for a in parameter.axes(leading)]
        if isinstance(parameter, IndexParameter):
            made.append(torch.zeros(shape, dtype=torch.int64))
        elif parameter.kind == "bool":
            made.append(torch.ones(shape, dtype=torch.bool))
        elif parameter.kind != "float":
            ones = torch.ones(shape, dtype=torch.int64)
            made.append(fitted(ones, parameter.domain, 0, len(shape)))
        else:
            count = math.prod(shape)
            ramp = torch.arange(1, count + 1, dtype=torch.float64)
            made.append((ramp / max(count, 1)).reshape(shape))
    return made


def _require_differentiable(
    made: Operator, operator: Operator, taken: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Run the oracle once, so that what autograd cannot do shows at the binding.

    Nothing is differentiated: autograd's engine asks the driver for its devices, and a
    process that has done that cannot be forked.

    Raises:
        BindingError: if the oracle cannot be differentiated.
    """
    if any(p.without for p in made.tensors.values()):
        return  # its shape takes the value of a scalar
    example = _example(operator, taken, _sizes(made, tuple(made.tensors)))
    scalars = {
        n: p.default
        for n, p in operator.scalars.items()
        if not isinstance(p, DtypeParameter) or p.default
    }
    oracle = partial(operator.oracle, **scalars)
    try:
        lacking = _without_derivative(oracle, example, [taken.index(n) for n in names])
    except Exception as error:
        lacking = f"{type(error).__name__}: {error}"
    if lacking:
        raise BindingError(
            f"its oracle cannot be differentiated: {lacking}"[:300],
            where=f"operator {operator.name}",
            fix="gradients= needs an oracle in plain torch",
        ) from None


def _without_derivative(
    oracle: Callable[..., Any], example: Sequence[Any], wanted: Sequence[int]
) -> str:
    """Return what of an oracle has no derivative, "" where all has one."""
    import torch

    given = list(example)
    with torch.enable_grad():
        for i in wanted:
            given[i] = given[i].detach().requires_grad_()
        returned = oracle(*given)
    results = returned if isinstance(returned, tuple | list) else (returned,)
    pending = [y.grad_fn for y in results]
    seen = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if "NotImplemented" in node.name():
            return "torch has no derivative of one of its operators"
        pending += [before for before, _ in node.next_functions]
    return ""


def declaration_of(
    operator: Operator, claims: Declaration, explicit: Collection[str]
) -> Declaration:
    """Return what a kernel that makes a declaration claims of its gradients.

    Args:
        operator: of the gradients.
        claims: of the forward kernel.
        explicit: names of the claims that were written down.
    """
    dtypes = tuple(d for d in claims.dtypes if d in operator.dtypes)
    propagates = "nonfinite" in explicit and claims.nonfinite == "propagate"
    return replace(
        claims,
        dtypes=dtypes,
        algorithm="",
        subnormals="any",
        batch_invariant=False,
        nonfinite="propagate" if propagates else "undefined",
        ties="any",
        inplace=(),
        out=(),
        own_kernels_only=False,
        out_of_bounds="undefined",
    )
