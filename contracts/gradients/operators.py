"""From an operator to the operator of its gradients."""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kfuzz import numerics as nm
from kfuzz.contracts.binding import REGISTRY, Arguments, BoundKernel
from kfuzz.contracts.gradients import rules
from kfuzz.contracts.gradients.bounds import derived_bound
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.prose import differentiated
from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.verdict import LIST
from kfuzz.strategies.parameters import (
    IndexParameter,
    ScalarParameter,
    TensorParameter,
    widest,
)

if TYPE_CHECKING:
    from torch import Tensor


# Gradients of operators for which there is no rule: autograd's own, step by step.
#
# The oracle and its derivative run under the running-error shadow like any reference,
# as operators that are not defined by others. Whatever a kernel keeps from the forward
# call, or a chain of library calls stores between its steps, is one of these results in
# the output's format: that rounding is admitted at each.


def autograd_bound(
    name: str,
    product: "Callable[..., tuple[nm.Tensor, ...]]",
    wanted: Sequence[str],
) -> "Callable[[nm.Problem], nm.Accepted]":
    """Return the error model of gradients of a user's oracle, one member at a time.

    Args:
        name: the gradients' name, for messages.
        product: the oracle of the gradients, see `vector_jacobian`.
        wanted: the arguments whose gradients are asked for, in order.
    """
    rule = rules.Rule((), {}, stored=rules.EVERY)
    bound = derived_bound(name, [product], wanted, rule, kinks=True)
    return lambda problem: bound(problem)


def vector_jacobian(
    oracle: "Callable[..., Any]",
    *,
    arguments: int,
    places: Sequence[int],
    wanted: Sequence[int],
) -> "Callable[..., tuple[nm.Tensor, ...]]":
    """Return the vector-Jacobian product of an oracle, by autograd.

    Args:
        oracle: of tensors and, by keyword, scalars.
        arguments: how many tensors it takes; gradients of outputs follow them.
        places: which of its results they belong to.
        wanted: positions of the arguments whose gradients are returned.
    """

    def product(*tensors: "nm.Tensor", **scalars: Any) -> "tuple[nm.Tensor, ...]":
        import torch

        given, grads = list(tensors[:arguments]), tensors[arguments:]

        def results(*leaves: "nm.Tensor") -> "tuple[nm.Tensor, ...]":
            for i, leaf in zip(wanted, leaves, strict=True):
                given[i] = leaf
            returned = oracle(*given, **scalars)
            every = returned if isinstance(returned, tuple | list) else (returned,)
            return tuple(every[place] for place in places)

        leaves = [given[i] for i in wanted]
        if any(map(torch._C._functorch.is_batchedtensor, tensors)):
            # Under torch.vmap no tensor can be made to require its gradient.
            pullback: Any = torch.func.vjp(results, *leaves)[1]
            return tuple(pullback(tuple(grads), create_graph=False))
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in leaves]
            made = results(*leaves)
            pairs = [p for p in zip(made, grads, strict=True) if p[0].requires_grad]
            found: Sequence[nm.Tensor | None] = [None] * len(leaves)
            if pairs:
                ends, into = zip(*pairs, strict=True)
                found = torch.autograd.grad(ends, leaves, into, allow_unused=True)
        return tuple(
            torch.zeros_like(x) if grad is None else grad
            for x, grad in zip(leaves, found, strict=True)
        )

    return product


DTYPES: Final = ("float32", "float16", "bfloat16")
_HOME: Final = "kfuzz.contracts.operators."
BACKWARD: Final = ".backward"
_SPECIAL: Final = (
    "a gradient that is not finite is not judged, nor is one of arguments with a NaN "
    'or an infinity; with nonfinite="propagate" a NaN in the gradient of an output '
    "reaches what depends on it"
)
# What is said of a bound, and why it holds.
_STEPS: Final = (
    "as the shadow's of the oracle and of its derivative by autograd, each result "
    "stored",
    "four times what the running-error shadow derives step by step, with each result "
    "of the forward and of the backward pass rounded to the output's format",
)
_DERIVED: Final = (
    "the running-error shadow of the operator's derivative: as it is where the "
    "operator is linear, else four times it; of what was kept from the forward call as "
    "it is or as it was stored"
)
# Distinct sizes from which the dimensions of a result are recognised.
_SIZES: Final = (3, 5, 7, 11, 13, 17, 19, 23)


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
            fix="`kfuzz contracts list` prints K-GRD-01 of those that have",
        )
    possible = _differentiable(operator, rule, taken)
    names = _chosen(wanted, possible, where)
    if rule is None:
        recognised = _recognised(operator, taken, names, where)
        return {"": _operator(operator, None, taken, names, recognised)}
    variants = rule.variants or {"": ({}, next(iter(rule.outputs.values())))}
    found = {}
    for suffix, (limits, dims) in variants.items():
        inputs = _limited(operator, limits, known)
        if inputs is None:
            continue
        every = {"y": dims} if rule.variants else rule.outputs
        outputs = {output: (dims, rule.lacks) for output, dims in every.items()}
        narrowed = replace(operator, inputs=inputs)
        found[suffix] = _operator(narrowed, rule, taken, names, outputs)
    if list(found) and "" not in found:
        found = {"": next(iter(found.values()))}
    return found


def rule_of(operator: Operator) -> rules.Rule | None:
    """Return the rule of one of kfuzz's own operators; None for others."""
    return operator.gradient if _is_own(operator) else None


def _is_own(operator: Operator) -> bool:
    return str(getattr(operator.oracle, "__module__", "")).startswith(_HOME)


def _differentiable(
    operator: Operator, rule: rules.Rule | None, taken: Sequence[str]
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
    wrong = partial(BindingError, where=where)
    if wanted is True:
        listed = possible
    else:
        given: Any = (wanted,) if isinstance(wanted, str) else wanted
        valid = isinstance(given, tuple | list | set | frozenset)
        if not valid or not all(isinstance(n, str) for n in given):
            raise wrong(f"gradients={wanted!r} is neither True nor names of arguments")
        for name in given:
            if name not in possible:
                raise wrong(
                    f"gradients names {name!r}, no argument that is differentiated",
                    fix=suggestion(name, possible),
                )
        listed = tuple(name for name in possible if name in given)
    if not listed:
        raise wrong("gradients names no argument")
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


def spelled(
    formula: Callable[[rules.Given], rules.Gradients],
    taken: tuple[str, ...],
    names: tuple[str, ...],
    outputs: Iterable[str],
) -> Callable[..., tuple[Any, ...]]:
    """Return a formula as a function of tensors, and of gradients of the outputs."""

    def product(*tensors: Any, **scalars: Any) -> tuple[Any, ...]:
        given = dict(zip(taken, tensors, strict=False))
        grads = dict(zip(outputs, tensors[len(taken) :], strict=True))
        stored = scalars.pop(rules.STORED, None)
        made = formula(rules.Given(given, grads, scalars, stored))
        return tuple(made[n].expand(given[n].shape) for n in names)

    return product


def _operator(
    operator: Operator,
    rule: rules.Rule | None,
    taken: tuple[str, ...],
    names: tuple[str, ...],
    outputs: Mapping[str, tuple[str, str]],
) -> Operator:
    """Return the operator of the gradients.

    Args:
        operator: the forward operator.
        rule: how it is differentiated; None for one of the user's own.
        taken: its tensors that the implementation takes.
        names: the arguments whose gradients are wanted.
        outputs: dimensions, and the parameter of the axis that is lacking, by output.
    """
    name = f"{operator.name}.backward"
    if rule is not None and rule.formula is not None:
        products = [spelled(rule.formula, taken, names, outputs)]
    else:
        products = [
            vector_jacobian(
                operator.on(form, taken),
                arguments=len(taken),
                places=[operator.outputs.index(output) for output in outputs],
                wanted=[taken.index(n) for n in names],
            )
            for form in (rule and rule.forms) or (operator.oracle,)
        ]
    if rule is None:
        error_model = autograd_bound(name, products[0], names)
        bound, derivation = _STEPS
    else:
        error_model = derived_bound(name, products, names, rule)
        bound, derivation = differentiated(operator.name), _DERIVED

    def oracle(*tensors: Any, **scalars: Any) -> Any:
        """The vector-Jacobian product of the operator, in plain torch."""
        made = products[0](*tensors, **scalars)
        return made if len(made) > 1 else made[0]

    tensors = {n: operator.tensors[n] for n in taken}
    for output, (dims, lacks) in outputs.items():
        tensors[rules.PREFIX + output] = TensorParameter(dims, without=lacks)
    gradients = ", ".join(f"d{n}" for n in names)
    return Operator(
        name,
        inputs={**tensors, **operator.scalars},
        oracle=oracle,
        error_model=error_model,
        relation=None if rule is None else rule.accept,
        outputs=tuple(f"d{n}" for n in names),
        ranks=operator.ranks,
        usual_rank=operator.usual_rank,
        reduced=operator.reduced,
        shape_class=operator.shape_class,
        homogeneous={" ".join(rules.PREFIX + output for output in outputs): 1},
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
    operator: Operator, taken: tuple[str, ...], names: Sequence[str], where: str
) -> dict[str, tuple[str, str]]:
    """Return each floating output's dimensions, and what it lacks.

    The oracle is run once, on arguments whose dimensions all have other sizes. Nothing
    is differentiated: autograd's engine asks the driver for its devices, and a process
    that has done that cannot be forked.

    Raises:
        BindingError: if the dimensions of a result are none of the arguments', or if
            torch has no derivative of the oracle in the arguments named.
    """
    wrong = partial(BindingError, where=where)
    import torch

    if lists := [output for output in operator.outputs if output.endswith(LIST)]:
        raise wrong(f"gradients= of the list {lists[0]}")
    sizes = sizes_of(operator, taken)
    example = example_of(operator, taken, sizes)
    for name in names:
        example[taken.index(name)].requires_grad_()
    scalars = {n: p.default for n, p in operator.scalars.items()}
    try:
        with torch.enable_grad():
            returned = operator.oracle(*example, **scalars)
    except Exception as error:
        raise wrong(
            f"its oracle, run once, raises {type(error).__name__}: {error}"[:300],
            fix="gradients= needs an oracle that takes arguments of any declared size",
        ) from None
    results = returned if isinstance(returned, tuple | list) else (returned,)
    if any(map(_lacks_derivative, results)):
        raise wrong(
            "its oracle cannot be differentiated: torch has no derivative of one of "
            "its operators",
            fix="gradients= needs an oracle in plain torch",
        )
    by_size = {n: axis for axis, n in sizes.items()}
    lead = next(
        p for p in operator.tensors.values() if not isinstance(p, IndexParameter)
    )
    leading = tuple(a for a in sizes if a.startswith("_"))
    found = {}
    for name, y in zip(operator.outputs, results, strict=False):
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
            raise wrong(
                f"the dimensions of {name}, {list(y.shape)} for "
                f"{sizes}, are none of the arguments'",
                fix="gradients= needs outputs whose dimensions the arguments have",
            )
        found[name] = (text, lacks)
    if not found:
        raise wrong("it has no floating output")
    return found


def sizes_of(operator: Operator, taken: Sequence[str]) -> dict[str, int]:
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
        if shape_class.accepts({**scalars, **sizes}):
            return sizes
    return dict(zip(every, _distinct(len(every), 0), strict=True))


def _distinct(count: int, start: int) -> Iterator[int]:
    """Yield different sizes; primes, or their doubles, in an order of their own."""
    pool = list(_SIZES) if not start else [n * (2 if start & 1 else 1) for n in _SIZES]
    turned = pool[start % len(pool) :] + pool[: start % len(pool)]
    for i in range(count):
        yield turned[i % len(turned)] + len(turned) * 8 * (i // len(turned))


def example_of(
    operator: Operator, taken: Sequence[str], sizes: Mapping[str, int]
) -> list[Any]:
    """Return float64 numbers of these sizes, and the least integers of each domain."""
    import torch

    from kfuzz.numerics.domains import fitted

    leading = [a for a in sizes if a.startswith("_")]
    made = []
    for name in taken:
        parameter = operator.tensors[name]
        shape = [sizes[a] for a in parameter.axes(leading)]
        if isinstance(parameter, IndexParameter):
            bound = sizes.get(parameter.below, math.prod(shape))
            zeros = torch.zeros(shape, dtype=torch.int64)
            made.append(fitted(zeros, parameter.domain, bound, len(shape)))
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


def at_an_example(operator: Operator) -> Iterator[tuple[str, str]]:
    """Yield what is accepted of one element of an example, and what is not."""
    import torch

    from kfuzz.contracts.oracle import accept
    from kfuzz.numerics.acceptance import Problem
    from kfuzz.numerics.formats import FORMATS

    taken, dtypes = tuple(operator.tensors), operator.dtypes
    fmt = FORMATS["float32" if "float32" in dtypes else dtypes[0]]
    given = example_of(operator, taken, sizes_of(operator, taken))
    held = (x.to(fmt.dtype).double() if x.is_floating_point() else x for x in given)
    scalars = {n: p.default for n, p in operator.scalars.items()}
    tensors = {n: x.unsqueeze(0) for n, x in zip(taken, held, strict=True)}
    try:
        accepted = accept(
            operator, Problem(tensors, scalars, fmt, fmt, operator.defaults)
        )
    except Exception:  # its domain is narrower than what its parameters say
        return
    output, made = next(iter(accepted.items()))
    decided = (~made.undecided & torch.isfinite(made.reference)).nonzero().tolist()
    if not decided or made.output.integral:
        return
    at = tuple(decided[len(decided) // 2])
    low, high = (end[at].to(made.output.dtype) for end in made.stored)
    ends = low.nextafter(low - 1), high.nextafter(high + 1)
    place = f"{output}[{', '.join(map(str, at[1:]))}]" if at[1:] else output
    sizes = ", ".join(f"{n} {list(x.shape)}" for n, x in zip(taken, given, strict=True))
    yield (
        "example",
        f"{sizes}, of n numbers 1/n to 1 in {fmt.name}: {place} = "
        f"{float(made.reference[at]):.9g} is accepted from {low:.9g} to {high:.9g}",
    )
    yield "rejected", f"there {ends[0]:.9g} and less, {ends[1]:.9g} and more, NaN"


def _lacks_derivative(result: Any) -> bool:
    """Whether some step of a result has none."""
    pending, seen = [getattr(result, "grad_fn", None)], set()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if "NotImplemented" in node.name():
                return True
            pending += [before for before, _ in node.next_functions]
    return False


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


# Calls of an implementation and of autograd, as kernels of gradients.
#
# The tensors that a case gives are taken as leaves where they lie, with their strides,
# and so are the gradients of the outputs. Gradients are returned as a kernel's results.


class Way(StrEnum):
    """A way of asking for the same gradients.

    Attributes:
        ALONE: one argument at a time requires a gradient.
        TWICE: two results of equal arguments in one graph; half of the sum.
        LATER: after another forward call on other data.
        AGAIN: a second time through a graph that is kept.
        OVERWRITTEN: after the results of the forward call were overwritten; where
            autograd refuses that, as it may, as without.
    """

    ALONE = "alone"
    TWICE = "twice"
    LATER = "later"
    AGAIN = "again"
    OVERWRITTEN = "overwritten"


class Backward:
    """The gradients of an implementation, as a callable.

    Attributes:
        forward: the implementation.
        tensors: names of the tensors that it takes, in order.
        wanted: the arguments whose gradients are returned.
        places: which of its results gradients are given for, in order.
        fixed: the arguments that are the same in another call: not all data are in
            their domain.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        *,
        tensors: Sequence[str],
        wanted: Sequence[str],
        places: Sequence[int],
        fixed: Sequence[str] = (),
    ) -> None:
        self.forward = forward
        self.tensors = tuple(tensors)
        self.wanted = tuple(wanted)
        self.places = tuple(places)
        self.fixed = tuple(fixed)
        functools.update_wrapper(self, forward, updated=())

    def __call__(self, *given: "Tensor", **scalars: Any) -> Any:
        """Return the gradients of one forward call.

        Args:
            given: the tensors, then the gradients of the outputs.
            scalars: the scalars and keywords of the implementation.
        """
        return self._alone(self.wanted, *given, **scalars)

    def asked(self, way: str, argument: str = "") -> Callable[..., Any]:
        """Return a callable that gives the same gradients in another way.

        Args:
            way: how, a `Way`.
            argument: the one that requires a gradient, for `ALONE`; gradients of the
                others are 0.
        """
        if way == Way.ALONE:
            return functools.partial(self._alone, (argument,))
        made: Callable[..., Any] = getattr(self, f"_{way}")  # named after the way
        return made

    def _alone(self, wanted: Sequence[str], *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, wanted)
        return self._returned(self._pulled(results, leaves, grads), leaves, given)

    def _twice(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        results = results + self._results(leaves, scalars)
        found = self._pulled(results, leaves, (*grads, *grads))
        halves = {n: None if g is None else g * 0.5 for n, g in found.items()}
        return self._returned(halves, leaves, given)

    def _later(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        named = zip(self.tensors, given, strict=False)
        others = [self._turned(name, x) for name, x in named]
        kept = self._results(self._leaves(others, self.wanted), scalars)
        found = self._pulled(results, leaves, grads)
        del kept  # alive until here: its memory is not the first call's
        return self._returned(found, leaves, given)

    def _turned(self, name: str, x: "Tensor") -> "Tensor":
        """Return other data for an argument, if it may have any: flipped, negated."""
        if name in self.fixed:
            return x
        other = x.flip(tuple(range(x.dim())))
        return -other if x.is_floating_point() else other

    def _again(self, *given: "Tensor", **scalars: Any) -> Any:
        leaves, results, grads = self._called(given, scalars, self.wanted)
        self._pulled(results, leaves, grads, keep=True)
        return self._returned(self._pulled(results, leaves, grads), leaves, given)

    def _overwritten(self, *given: "Tensor", **scalars: Any) -> Any:
        import torch

        leaves, results, grads = self._called(given, scalars, self.wanted)
        owned = {_memory(x) for x in given}
        try:
            with torch.no_grad():
                for y in results:
                    if y.is_floating_point() and _memory(y) not in owned:
                        y.fill_(2.0**10)
            found = self._pulled(results, leaves, grads)
        except RuntimeError:
            return self(*given, **scalars)
        return self._returned(found, leaves, given)

    def _called(
        self, given: "Sequence[Tensor]", scalars: dict[str, Any], wanted: Sequence[str]
    ) -> "tuple[dict[str, Tensor], tuple[Tensor, ...], Sequence[Tensor]]":
        """Return the leaves, the results of one forward call, and their gradients."""
        n = len(self.tensors)
        leaves = self._leaves(given[:n], wanted)
        return leaves, self._results(leaves, scalars), given[n:]

    def _leaves(
        self, arguments: "Sequence[Tensor]", wanted: Sequence[str]
    ) -> "dict[str, Tensor]":
        """Return views of the arguments, those wanted as leaves of a graph."""
        named = zip(self.tensors, arguments, strict=True)
        return {name: x.detach().requires_grad_(name in wanted) for name, x in named}

    def _results(
        self, leaves: "dict[str, Tensor]", scalars: dict[str, Any]
    ) -> "tuple[Tensor, ...]":
        """Return the differentiable results of the implementation, in order."""
        import torch

        with torch.enable_grad():
            returned = self.forward(*leaves.values(), **scalars)
        results = returned if isinstance(returned, tuple | list) else (returned,)
        return tuple(results[place] for place in self.places)

    def _pulled(
        self,
        results: "Sequence[Tensor]",
        leaves: "dict[str, Tensor]",
        grads: "Sequence[Tensor]",
        *,
        keep: bool = False,
    ) -> "dict[str, Tensor | None]":
        """Return the gradient of each leaf that requires one; None where there is none.

        On a GPU too the calling thread runs the graph, which is watched alone.
        """
        import torch

        needed = {name: x for name, x in leaves.items() if x.requires_grad}
        pairs = [(y, g) for y, g in zip(results, grads, strict=True) if y.requires_grad]
        if not pairs:
            return dict.fromkeys(needed)
        made, into = zip(*pairs, strict=True)
        with torch.autograd.set_multithreading_enabled(False):
            found = torch.autograd.grad(
                made, list(needed.values()), into, allow_unused=True, retain_graph=keep
            )
        return dict(zip(needed, found, strict=True))

    def _returned(
        self,
        found: "dict[str, Tensor | None]",
        leaves: "dict[str, Tensor]",
        given: "Sequence[Tensor]",
    ) -> Any:
        """Return gradients as results: None as 0, and none in another's memory.

        Autograd may hand on the gradient that it was given.
        """
        import torch

        taken = {_memory(x) for x in given[len(self.tensors) :]}
        made = []
        for name in self.wanted:
            grad = found.get(name)
            if grad is None:
                grad = torch.zeros(
                    leaves[name].shape,
                    dtype=leaves[name].dtype,
                    device=leaves[name].device,
                )
            elif _memory(grad) in taken:
                grad = grad.detach().clone(memory_format=torch.contiguous_format)
            taken.add(_memory(grad))
            made.append(grad.detach())
        return tuple(made) if len(made) > 1 else made[0]


def _memory(x: "Tensor") -> int:
    return x.untyped_storage().data_ptr() if x.numel() else id(x)


# Binding the gradients of a kernel beside it.

SUFFIX = "backward"


def bind_gradients(forward: BoundKernel, wanted: bool | Sequence[str]) -> None:
    """Bind the gradients of a bound kernel, in its module, as kernels of their own.

    They are named `<name>.backward`, and are attributes of that name of it.

    Args:
        forward: the kernel.
        wanted: the arguments whose gradients are judged; True for all.

    Raises:
        BindingError: if the operator has no gradients, the kernel works in place or
            into destinations, or declares no format in which gradients are judged.
    """
    where, claims = f"kernel {forward.name}", forward.declaration
    wrong = partial(BindingError, where=where)
    if claims.inplace or claims.out:
        given = "inplace" if claims.inplace else "out"
        raise wrong(
            f"gradients= of a kernel with {given}=: autograd sees no result",
            fix="bind the function that returns its results",
        )
    takes = forward.arguments
    try:
        made = gradients_of(
            forward.operator, wanted, tensors=takes.tensors, scalars=takes.scalars
        )
    except BindingError as error:
        raise wrong(error.what, fix=error.fix) from None
    for suffix, operator in made.items():
        declaration = declaration_of(operator, claims, forward.explicit)
        if not declaration.dtypes:
            raise wrong(f"gradients are judged in {', '.join(operator.dtypes)} alone")
        grads = tuple(n for n in operator.tensors if n.startswith(rules.PREFIX))
        outputs = operator.forward.outputs if operator.forward else ()
        function = Backward(
            forward.function,
            tensors=takes.tensors,
            wanted=[name[1:] for name in operator.outputs],
            places=[outputs.index(name[len(rules.PREFIX) :]) for name in grads],
            fixed=[
                name
                for name, parameter in operator.tensors.items()
                if parameter.role in ("variance", "mask") or parameter.domain
            ],
        )
        tensors = (*takes.tensors, *grads)
        attribute = f"{SUFFIX}{suffix}"
        bound = BoundKernel(
            function,
            name=f"{forward.name}.{attribute}",
            operator=operator,
            declaration=declaration,
            explicit=forward.explicit,
            arguments=Arguments(tensors, takes.scalars, (), tensors),
            module=forward.module,
            line=forward.line,
            top_level=forward.top_level,
        )
        bound.tuners = forward.tuners
        functools.update_wrapper(bound, forward.function, updated=())
        setattr(forward, attribute, bound)
        REGISTRY[forward.module].append(bound)
