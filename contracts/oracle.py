"""The oracle's side of a case: the problem posed and what is admitted for it."""

import copy
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, overload

import torch
from torch import Tensor

from kfuzz.contracts.operator import (
    FormFunction,
    Operator,
    alone,
    count,
    joined,
    takes_members,
)
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import (
    Case,
    Destination,
    Scalar,
    contiguous_strides,
    layout_of,
    unravel,
)
from kfuzz.core.verdict import OtherForm, named, output_of
from kfuzz.numerics.acceptance import Acceptance, Problem, hull, whole
from kfuzz.numerics.accumulation import Accumulation, identical
from kfuzz.numerics.compare import Comparison, compare_members
from kfuzz.numerics.formats import (
    FORMATS,
    WHOLE,
    InOwnIntegers,
    in_float64,
    is_subnormal,
)
from kfuzz.numerics.models.functions import Elementwise
from kfuzz.numerics.models.sums import out_of_bounds
from kfuzz.numerics.run import Expected
from kfuzz.numerics.shadow import shadowed
from kfuzz.strategies import scalar, tensors
from kfuzz.strategies.parameters import (
    INDEX_ROLE,
    ListParameter,
    Parameter,
    TensorParameter,
)

# Results that are not unique: judged by a relation between them and the inputs.
#
# The indices of a top-k may name either of two equal elements; the codes of a quantized
# row depend on the scale that the kernel itself chose. Such an operator gives
# `accept(problem, outputs)`:
#
# * `outputs` are the kernel's own results by name, [members, *shape] in the dtypes they
#   are stored in. They may hold anything: an index must be clamped before it is used.
# * It returns, per output that it judges, a bool mask of the same shape: True where the
#   element is admitted. The first line of its docstring says what it asks for.
#
# It judges what the interval admits: metadata, classes and ranges of values come first.
# An element that the error model leaves undecided stays so, and one that is
# range-limited is undecided where the relation refuses it.


def _admitted(
    operator: Operator, problem: Problem, outputs: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Return where each output that the relation judges is allowed.

    Raises:
        BindingError: if a mask fits no output.
    """
    assert operator.relation is not None
    members = count(problem)
    if members == 1 or takes_members(operator.relation):
        masks = operator.relation(problem, outputs)
    else:
        rows = [
            operator.relation(
                alone(problem, i), {n: y[i : i + 1] for n, y in outputs.items()}
            )
            for i in range(members)
        ]
        masks = {n: torch.cat([row[n] for row in rows]) for n in rows[0]}
    for name, mask in masks.items():
        wanted = outputs[name].shape if name in outputs else None
        if mask.dtype is not torch.bool or mask.shape != wanted:
            raise BindingError(
                f"accept returns {mask.dtype} {tuple(mask.shape)} for {name!r}",
                where=f"operator {operator.name}",
                fix="return a bool mask of an output's shape, True if allowed",
            )
    return masks


def related(
    operator: Operator, problem: Problem, accepted: Mapping[str, Acceptance]
) -> dict[str, Acceptance]:
    """Return the acceptances with the operator's relation, if it has one."""
    if operator.relation is None:
        return dict(accepted)
    relation = partial(_admitted, operator, problem)
    return {n: replace(a, relation=relation) for n, a in accepted.items()}


def compare_all(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Comparison]:
    """Hold all outputs of one run against their acceptances and their relation.

    Args:
        outputs: stored results by name, without the member dimension.
        accepted: of the same names.

    Raises:
        BindingError: if the operator's relation is malformed.
    """
    stored = {name: outputs[name].unsqueeze(0) for name in accepted}
    return compare_members(stored, accepted)


def promise(operator: Operator) -> str:
    """Return what an operator's relation asks for, in words."""
    text = (operator.relation.__doc__ or "").strip() if operator.relation else ""
    return text.splitlines()[0].rstrip(".") if text else "its results fit together"


# What a case may hold that a kernel promises no value for.
#
# NaN and infinities where they do not propagate, and indices out of bounds.

ASKING: Final = frozenset({"mask", "raise", "undefined"})
"""Policies that depend on whether the data hold NaN or infinities."""


@dataclass(frozen=True)
class NonFinite:
    """One element of the data that is NaN or infinite.

    Attributes:
        argument: the parameter.
        at: logical index of the element.
        value: what it holds.
    """

    argument: str
    at: tuple[int, ...]
    value: float

    def describe(self) -> str:
        """Return for example "x[0, 2] is nan"."""
        place = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        return f"{self.argument}{place} is {self.value:g}"


def is_concerned(operator: Operator, name: str, values: Tensor) -> bool:
    """Whether a policy for NaN and infinities speaks of an argument.

    Of floats it does, but for additive masks: there -Inf has a meaning.
    """
    return values.is_floating_point() and operator.tensors[name].role != "mask"


def first_nonfinite(
    operator: Operator, values: Mapping[str, Tensor]
) -> NonFinite | None:
    """Return the first NaN or infinity of any argument concerned.

    Args:
        operator: what is to be computed.
        values: logical elements by argument, in their own dtypes.
    """
    for name, given in values.items():
        if not is_concerned(operator, name, given):
            continue
        x = given.to(torch.float64)
        wrong = ~torch.isfinite(x)
        if bool(wrong.any()):
            at = _first(wrong)
            return NonFinite(name, at, float(x[at]))
    return None


def _first(mask: Tensor) -> tuple[int, ...]:
    """Return the index of the first True element."""
    return unravel(int(mask.flatten().to(torch.uint8).argmax()), mask.shape)


def masked(values: Tensor) -> Tensor:
    """Return the values with +0 for NaN and infinities."""
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class OutOfBounds:
    """One element of an index argument that selects nothing.

    Attributes:
        argument: the index parameter.
        at: logical index of the element.
        value: what it holds.
        dimension: the dimension that it selects along.
        bound: the size of that dimension.
        taken: whether no kernel has to raise: nothing is there to be selected, other
            dimensions being 0, or a reference itself takes the index.
    """

    argument: str
    at: tuple[int, ...]
    value: int
    dimension: str
    bound: int
    taken: bool = False

    def describe(self) -> str:
        """Return for example "indices[0] = 5 is not below V = 5"."""
        place = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        text, limit = f"{self.argument}{place}", f"{self.dimension} = {self.bound}"
        if self.value < 0:
            return f"{text} = {self.value} is negative ({limit})"
        return f"{text} = {self.value} is not below {limit}"


def first_out_of_bounds(
    operator: Operator, case: Case, problem: Problem
) -> OutOfBounds | None:
    """Return the first element of any index argument that is out of bounds.

    Elements equal to the scalar that the operator ignores are not.
    """
    for name, parameter in operator.straying.items():
        if name not in problem.tensors:
            continue
        index, bound = problem.tensors[name][0], case.bound(case.tensors[name])
        outside = out_of_bounds(index, bound)
        if parameter.ignored:
            outside = outside & (index != problem.axis(parameter.ignored))
        if bool(outside.any()):
            at = _first(outside)
            return OutOfBounds(
                argument=name,
                at=at,
                value=int(index[at]),
                dimension=parameter.below,
                bound=bound,
                taken=_is_empty(case, parameter.below) or _takes(operator, problem),
            )
    return None


def _takes(operator: Operator, problem: Problem) -> bool:
    """Whether a reference takes arguments; on the host: a device may be lost by it."""
    tensors = {name: x.cpu() for name, x in problem.tensors.items()}
    try:
        accept(operator, replace(problem, tensors=tensors))
    except Exception:
        return False
    return operator.written


def _is_empty(case: Case, dimension: str) -> bool:
    """Whether tensors with the dimension have no element whatever its size is."""
    found = [s for s in case.tensors.values() if dimension in s.axes]
    sizes = (zip(s.axes, s.shape, strict=True) for s in found)
    return any(n == 0 for named in sizes for axis, n in named if axis != dimension)


def scalars_of(
    operator: Operator, case: Case, values: Mapping[str, Tensor]
) -> dict[str, Scalar]:
    """Return all scalars of a case; `dim` as a negative number.

    Args:
        operator: what is to be computed.
        case: the recipe.
        values: logical elements of one item.
    """
    out: dict[str, Scalar] = {}
    for name in operator.scalars:
        out[name] = case.scalars.get(name, operator.default_of(name))
    out.update(operator.following(case, values))
    if operator.dim is not None:
        axis = operator.reduced_axis(case)
        assert axis is not None
        out[operator.dim] = axis
    return out


def pose(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
) -> Problem:
    """Return the problem as the oracle sees it, one member.

    Where NaN and infinities are masked it sees zeros instead of them.

    Args:
        operator: what is to be computed.
        case: the recipe.
        values: logical elements in their own dtypes.
        declaration: what the kernel claims.
    """
    single = {name: x.unsqueeze(0) for name, x in values.items()}
    return pose_members(operator, case, single, declaration)


def pose_members(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
) -> Problem:
    """Return the problem of members that share a case's structure; see `pose`.

    Args:
        operator: what is to be computed.
        case: the recipe of one of them.
        values: elements in their own dtypes, [members, *shape].
        declaration: what the kernel claims.
    """
    dtype = operator.dtype_of(case)
    seen = dict(values)
    if declaration.nonfinite == "mask":
        for name, x in values.items():
            if is_concerned(operator, name, x):
                seen[name] = masked(x.to(torch.float64))
    return Problem(
        tensors={n: _exact(v) for n, v in seen.items()},
        scalars=scalars_of(operator, case, {n: x[0] for n, x in values.items()}),
        format=FORMATS[dtype],
        output=FORMATS[dtype],
        declaration=declaration,
    )


def _exact(values: Tensor) -> Tensor:
    """Return floating numbers as float64, integers as int64, and masks as they are."""
    if values.dtype is torch.bool:
        return values
    return values.to(torch.float64 if values.is_floating_point() else torch.int64)


def accept(operator: Operator, problem: Problem) -> dict[str, Acceptance]:
    """Return the acceptance of each output, with the operator's relation.

    Members do not depend on one another: each has what it has alone, up to the last
    bits of what torch sums or vectorises otherwise for a tensor of another shape.

    Where the oracle of an operator that is `written` gives NaN, and a number once each
    infinity that it was given is the greatest finite number instead, the NaN comes from
    its manner of writing: 0 times infinity, or infinity less infinity, where another
    form of the same function has a value. Such elements are not decided. A kernel that
    declares nonfinite="propagate" is held to the oracle's NaN there too.

    Integers leave the range of their own data type where int64 goes on. An integer that
    differs from the oracle's by what wraps alone is right wrapped, in whatever width a
    kernel computes; what else comes out otherwise in their own data type is not
    decided.

    Without an error model it is that of the running-error shadow. Where subnormal
    numbers are declared to be flushed, elementwise operators see 0 for them.

    Raises:
        BindingError: if a user's oracle or error model is malformed.
        Exception: whatever the oracle raises outside its domain.
    """
    problem = _flushed(operator, problem)
    accepted = _stored(operator, _accept(operator, problem))
    if operator.error_model is None:
        accepted = _wrapped(operator, problem, accepted)
    if operator.written:
        accepted = _without_own_nan(operator, problem, accepted)
    return related(operator, problem, accepted)


def _wrapped(
    operator: Operator, problem: Problem, accepted: dict[str, Acceptance]
) -> dict[str, Acceptance]:
    """Return the acceptances of numbers whose integers leave their data type.

    Numbers of 8 and 16 bits are codes, which are computed with in a wider type: only
    what is stored in so few bits itself wraps. Indices have their declared type or
    int64, in which the oracle meets them: both are tried, for what promotes with them.
    """
    own: dict[str, Tensor] = {}
    indices: dict[str, Tensor] = {}
    for name, x in problem.tensors.items():
        parameter = operator.tensors[name]
        if parameter.dtype in NARROW:
            to = indices if parameter.role == INDEX_ROLE else own
            to[name] = x.to(WHOLE[parameter.dtype].dtype)
    plain = {n: x for n, x in own.items() if not _is_code(x)}
    tried = [own] if len(plain) == len(own) else [own, plain]
    tried += [{**given, **indices} for given in tried if indices]
    made = accepted
    if tried := list(filter(None, tried)):
        try:
            wide = _evaluated(operator, problem)
        except Exception:  # it is defined for none of them
            tried = []
    for given in tried:
        made = _turned(operator, problem, given, wide, made)
    return {name: _in_range(a) for name, a in made.items()}


NARROW: Final = WHOLE.keys() - {"bool", "int64"}


def _is_code(x: Tensor) -> bool:
    return x.dtype.itemsize < torch.int32.itemsize


def _turned(
    operator: Operator,
    problem: Problem,
    given: Mapping[str, Tensor],
    wide: Mapping[str, Tensor],
    accepted: dict[str, Acceptance],
) -> dict[str, Acceptance]:
    """Return the acceptances with what wraps if some arguments keep their type.

    Args:
        operator: what is computed.
        problem: the inputs, and the declaration.
        given: the arguments that keep their type, in it.
        wide: the oracle's results where none does.
        accepted: what is accepted so far.
    """
    try:
        with InOwnIntegers():  # type: ignore[no-untyped-call]
            posed = replace(problem, tensors={**problem.tensors, **given})
            narrow = _evaluated(operator, posed)
    except Exception:  # it is not defined for these
        return accepted
    made, codes = dict(accepted), any(map(_is_code, given.values()))
    for name, a in accepted.items():
        x, y = narrow[name], wide[name]
        if codes and (a.exact is None or x.dtype is torch.bool):
            continue
        if a.exact is None:
            same = agree(x.to(torch.float64), y)
        elif x.dtype.itemsize < a.output.dtype.itemsize:  # a wider result is meant
            continue
        else:
            same, right = agree(x, y), x.to(torch.int64)
            wraps, value = same & (right != y.to(torch.int64)), x.to(torch.float64)
            a = replace(
                a,
                exact=torch.where(wraps, right, a.exact),
                reference=torch.where(wraps, value, a.reference),
                low=torch.where(wraps, value, a.low),
                high=torch.where(wraps, value, a.high),
            )
        made[name] = replace(a, undecided=a.undecided | ~same)
    return made


def agree(x: Tensor, wide: Tensor) -> Tensor:
    """Return where results in two widths are one, but for what wraps in x's type."""
    if x.is_floating_point():
        wide = wide.to(torch.float64)
        return torch.isclose(x, wide, rtol=1e-12, atol=0.0, equal_nan=True)
    return x == wide.to(x.dtype)


def _in_range(accepted: Acceptance) -> Acceptance:
    """Return the acceptance undecided where no number of its data type is right."""
    kind = accepted.output.dtype
    if accepted.exact is None or kind in (torch.bool, torch.int64):
        return accepted
    limits = torch.iinfo(kind)
    outside = (accepted.exact < limits.min) | (accepted.exact > limits.max)
    return replace(accepted, undecided=accepted.undecided | outside)


def _without_own_nan(
    operator: Operator, problem: Problem, accepted: dict[str, Acceptance]
) -> dict[str, Acceptance]:
    """Return the acceptances undecided where only the oracle's form makes a NaN."""
    if not any(bool(a.reference.isnan().any()) for a in accepted.values()):
        return accepted
    real = {n: x for n, x in problem.tensors.items() if x.is_floating_point()}
    if not any(bool(x.isinf().any()) for x in real.values()):
        return accepted
    top = problem.format.max_finite
    finite = {n: x.clamp(-top, top) for n, x in real.items()}
    posed = replace(problem, tensors={**problem.tensors, **finite})
    try:
        results = _evaluated(operator, posed)
    except Exception:  # it is not defined there
        return accepted
    made = dict(accepted)
    for name, a in accepted.items():
        own = a.reference.isnan() & ~results[name].to(torch.float64).isnan()
        made[name] = replace(a, undecided=a.undecided | own)
    return made


def _stored(
    operator: Operator, accepted: dict[str, Acceptance]
) -> dict[str, Acceptance]:
    """Return the acceptances with the data types that the operator declares.

    Raises:
        BindingError: if the oracle gives numbers of another kind.
    """
    for name, found in accepted.items():
        dtype = operator.results.get(output_of(name))
        if dtype is None:
            continue
        is_real = DTYPES[dtype].kind == "float"
        if is_real == found.output.integral:
            raise BindingError(
                f"the oracle returns {'integers' if is_real else 'floating numbers'} "
                f"for {name!r}, which is declared {dtype}",
                where=f"operator {operator.name}",
                fix="mend results=, or cast what the oracle returns",
            )
        output = FORMATS[dtype] if is_real else WHOLE[dtype]
        accepted = {**accepted, name: replace(found, output=output)}
    return accepted


def _flushed(operator: Operator, problem: Problem) -> Problem:
    """Return the problem as kernels see it that declare to flush.

    What other than elementwise kernels make of a subnormal number before it meets the
    next is theirs; where bits are only moved, the result tells all.
    """
    tensors = operator.tensors
    plain = operator.dim is None and operator.reduced is None
    plain = plain and all(p.dims == "*" for p in tensors.values())
    moves = operator.defaults.subnormals == "preserve"
    if problem.declaration.subnormals != "flush" or moves or not plain:
        return problem
    seen = {}
    for name, x in problem.tensors.items():
        free = tensors[name].kind == "float" and not tensors[name].dtype
        small = is_subnormal(x, problem.format) if free else None
        seen[name] = x if small is None else torch.where(small, 0.0, x)
    return replace(problem, tensors=seen)


def _accept(operator: Operator, problem: Problem) -> dict[str, Acceptance]:
    if operator.error_model is None:
        return _of_forms(operator, problem)
    if isinstance(operator.error_model, Elementwise):
        return {
            name: operator.error_model.around(_for(operator, problem, name), y)
            if y.is_floating_point()
            else whole(problem, y)
            for name, y in _evaluated(operator, problem).items()
        }
    members = count(problem)
    if members == 1 or takes_members(operator.error_model):
        return _modelled(operator, problem)
    return joined([_modelled(operator, alone(problem, i)) for i in range(members)])


def _of_forms(operator: Operator, problem: Problem) -> dict[str, Acceptance]:
    """Return what lies within the bound of some form, or between two of them.

    Where none is declared, some times the bound of the oracle.
    """
    declared = operator.forms_of(problem.declaration.algorithm)
    found = []
    for form in declared or (operator.oracle,):
        function, names = _in_a_row(operator, problem, form)
        made = shadowed(
            function, problem, name=operator.name, form=bool(declared),
            proven=takes_members(form),
        )  # fmt: skip
        found.append(made)
    hulls = (hull(*column) for column in zip(*found, strict=True))
    return dict(zip(names, hulls, strict=True))


def _for(operator: Operator, problem: Problem, output: str) -> Problem:
    """Return the problem with the format in which one output is stored."""
    dtype = operator.results.get(output_of(output), "")
    return replace(problem, output=FORMATS[dtype]) if dtype in FORMATS else problem


def _modelled(operator: Operator, problem: Problem) -> dict[str, Acceptance]:
    """Return what an operator's own error model gives, by output."""
    assert callable(operator.error_model)
    made = operator.error_model(problem)
    if isinstance(made, Mapping):
        return dict(made)
    return {output_of(operator.outputs[0]): made}


def _in_a_row(
    operator: Operator, problem: Problem, form: FormFunction
) -> tuple[Callable[..., Any], list[str]]:
    """Return the oracle, or another form of it, with its results as one tuple.

    Their names follow once it has run.

    Raises:
        BindingError: by the oracle, if it does not give one result for each output.
    """
    oracle = operator.on(form, problem.tensors)
    names: list[str] = []

    def call(*tensors: Any, **scalars: Any) -> tuple[Any, ...]:
        returned = oracle(*tensors, **scalars)
        try:
            made = named(returned, operator.outputs)
        except OtherForm as other:
            fix = "name each of outputs=, a list of tensors as outputs=('parts[]',)"
            where = f"operator {operator.name}"
            raise BindingError(
                f"the oracle returns {other}", where=where, fix=fix
            ) from None
        names[:] = made
        return tuple(made.values())

    return call, names


def _evaluated(operator: Operator, problem: Problem) -> dict[str, Tensor]:
    """Return the oracle's results of all members by name, [members, *shape] each."""
    members = count(problem)
    oracle, names = _in_a_row(operator, problem, operator.oracle)

    def alone(i: int) -> tuple[Tensor, ...]:
        row = [t[i] for t in problem.tensors.values()]
        return in_float64(oracle, row, dict(problem.scalars), name=operator.name)

    found = _at_once(oracle, alone, problem, operator.name) if members > 1 else None
    if found is None:
        rows = [alone(i) for i in range(members)]
        found = tuple(torch.stack(column) for column in zip(*rows, strict=True))
    return dict(zip(names, found, strict=True))


def _at_once(
    oracle: Callable[..., Any],
    alone: Callable[[int], tuple[Tensor, ...]],
    problem: Problem,
    name: str,
) -> tuple[Tensor, ...] | None:
    """Run an oracle once for all members; None where it does not let itself.

    `torch.vmap` shows it one member each; the first and the last one, run alone
    besides, must have the same bits.
    """

    def every(*tensors: Tensor) -> Any:
        def one(*row: Tensor) -> Any:
            return oracle(*row, **problem.scalars)

        return torch.vmap(one)(*tensors)

    given = list(problem.tensors.values())
    try:
        found = in_float64(every, given, {}, name=name)
    except Exception:
        return None
    for i in (0, count(problem) - 1):
        row = alone(i)
        pairs = zip(found, row, strict=False)
        if len(found) != len(row) or not all(identical(a[i], b) for a, b in pairs):
            return None
    return found


def expected_metadata(acceptance: Mapping[str, Acceptance]) -> dict[str, Expected]:
    """Return shape and dtype that each output must have."""
    return {n: Expected(a.shape, a.output.dtype) for n, a in acceptance.items()}


# Other arithmetic than the declared one that a miss may be attributed to.


def accumulates(operator: Operator, case: Case) -> bool:
    """Whether an element of the result is more than one term summed, or may be.

    In doubt it is: only where it is certainly not would the name of an accumulator
    be wrong.
    """
    if operator.dim is None and operator.reduced is None:
        if operator.forward is not None:  # gradients add up what was broadcast
            return any(p.dims != "*" for p in operator.tensors.values())
        return bool(operator.indices)
    if operator.forward is not None or operator.groups:
        return True
    return operator.reduced_size(case) != 1 or _has_window(operator, case)


def _has_window(operator: Operator, case: Case) -> bool:
    """Whether other dimensions than the reduced one may be summed over.

    So a filter's: it is no vector of parameters and does not have the reduced one.
    """
    others = [s for s in case.tensors.values() if s is not case.lead]
    reduced = operator.reduced
    return any(len(s.axes) > 1 and reduced not in s.axes for s in others)


def other_algorithms(
    operator: Operator, problem: Problem
) -> Iterator[tuple[str, Declaration]]:
    """Yield what the operator lets a kernel declare and this one does not, by name."""
    for name in operator.algorithms:
        if name != problem.declaration.algorithm:
            text = f'algorithm="{name}"'
            yield text, replace(problem.declaration, algorithm=name)


def narrower_declarations(
    problem: Problem, *, sums: bool = True
) -> list[tuple[str, Declaration]]:
    """Return the arithmetics next narrower than the declared one, widest first.

    Each comes with its description. For 16-bit data the candidates are an
    accumulator, intermediates, or both in the data's own format; for float32
    data TF32 operands, then the 16-bit formats.

    Args:
        problem: with the declared arithmetic.
        sums: whether there are sums; where not, what a narrower accumulator stands for
            are the intermediate results, or the operands of a single product.
    """
    claims = problem.declaration
    held = Accumulation.declared(claims).held_bits(problem.format)
    data = problem.format.name
    candidates = ("tf32", "float16", "bfloat16")
    names = [n for n in candidates if data in ("float32", n)]
    out: list[tuple[str, Declaration]] = []
    rounds = claims.intermediates == "float32" and problem.output.precision < 24
    for name in names:
        if FORMATS[name].precision < held:
            narrow = replace(claims, accumulator=name)
            single = "tf32 operands" if name == "tf32" else f"{name} intermediates"
            out.append((f"a {name} accumulator" if sums else single, narrow))
            if rounds:
                both = replace(narrow, intermediates="output")
                text = f"a {name} accumulator and intermediates"
                out.append((text if sums else single, both))
    if rounds:
        coarse = replace(claims, intermediates="output")
        out.insert(0, (f"{problem.output.name} intermediates", coarse))
    return out


# `kfuzz.reference`: any function or module in plain torch as an operator.


@overload
def reference(
    function: Callable[..., Any],
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Operator: ...


@overload
def reference(
    function: None = None,
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Callable[[Callable[..., Any]], Operator]: ...


def reference(
    function: Callable[..., Any] | None = None,
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Operator | Callable[[Callable[..., Any]], Operator]:
    """Return the operator that a function or module in plain torch computes.

    The function itself, run in float64, is the oracle; integers and truth values it is
    given, and returns, exactly. The running-error shadow bounds how much a kernel of
    the same steps may differ. Without a function it returns a decorator.

    Args:
        function: takes tensors by position, and scalars by keyword.
        inputs: its parameters in order, by `kfuzz.strategies`. By default every
            parameter without a default is a tensor, all of one shape; parameters whose
            default is a number or a text are scalars.
        name: the operator's name; the function's own by default.
        eager: whether kernels may store each intermediate result as torch's eager mode
            does: they start from `intermediates="output"`, and a value that the steps
            could not give then violates C-CMP-01.
        parts: further fields of `kfuzz.Operator`: `outputs=`, `results=`,
            `shape_class=`, ….

    Raises:
        BindingError: if a parameter cannot be inferred or is not the function's, or a
            part is no field.
    """
    if function is None:
        return lambda f: reference(f, inputs, name=name, eager=eager, **parts)
    if not callable(function):
        raise BindingError(f"{function!r:.60} is not callable", where="kfuzz.reference")
    label = name or name_of(function)
    is_module = isinstance(function, torch.nn.Module)
    forward = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(forward)
    except ValueError:  # of a builtin nothing is known
        signature = inspect.signature(lambda *tensors, **scalars: None)
    given = _inferred(signature, label) if inputs is None else dict(inputs)
    _check_names(signature, given, label)
    own: dict[str, Any] = {"written": True}
    if eager:  # such kernels take its very steps
        stored = Declaration(intermediates="output")
        own = {"chain": (f"{label} in eager mode",), "defaults": stored}
    oracle = _Doubled(function) if is_module else function
    try:
        return Operator(label, inputs=given, oracle=oracle, **{**own, **parts})
    except TypeError as error:
        raise BindingError(str(error), where=f"reference {label}") from None


def unjudged(
    inputs: Mapping[str, Parameter], outputs: Mapping[str, str], **parts: Any
) -> Operator:
    """Return an operator of which only arguments are known, and shapes of results.

    Results may hold any value: what remains is what a kernel touches, whether it races,
    and whether it writes all of its results.

    Args:
        inputs: as of `reference`.
        outputs: of each result its dimensions, named or numbers: "N D", "N 4".
        parts: further fields of `kfuzz.Operator`.
    """

    def sizes(*given: Tensor, **scalars: Any) -> list[tuple[int, ...]]:
        found: dict[str, int] = {}
        takes = (p for p in inputs.values() if isinstance(p, TensorParameter))
        for parameter, x in zip(takes, given, strict=True):
            found |= parameter.sizes(x.shape)
        each = [dims.split() for dims in outputs.values()]
        return [tuple(int(d) if d.isdigit() else found[d] for d in e) for e in each]

    return unbounded(inputs, tuple(outputs), sizes, **parts)


def unbounded(
    inputs: Mapping[str, Parameter],
    outputs: tuple[str, ...],
    sizes: Callable[..., list[tuple[int, ...]]],
    **parts: Any,
) -> Operator:
    """Return an operator of which any value is right.

    Args:
        inputs: as of `reference`.
        outputs: names of its results.
        sizes: returns theirs, given the arguments.
        parts: further fields of `kfuzz.Operator`.
    """

    def zeros(*given: Tensor, **scalars: Any) -> Any:
        made = [torch.zeros(s, dtype=torch.float64) for s in sizes(*given, **scalars)]
        return made[0] if len(made) == 1 else tuple(made)

    def anything(problem: Problem) -> Any:
        given = [x[0] for x in problem.tensors.values()]
        made = {}
        for name, s in zip(outputs, sizes(*given, **problem.scalars), strict=True):
            zero = torch.zeros((count(problem), *s), dtype=torch.float64)
            every, never = torch.full_like(zero, 255, dtype=torch.uint8), zero > 0
            made[name] = Acceptance(
                zero, zero - torch.inf, zero + torch.inf, every, never, never,
                problem.output,
            )  # fmt: skip
        return made if len(made) > 1 else next(iter(made.values()))

    return Operator("unjudged", inputs, zeros, anything, outputs=outputs, **parts)


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of a module."""
    name = getattr(function, "__name__", "") or type(function).__name__
    return "reference" if name == "<lambda>" else str(name)


def lead_of(arguments: tuple[Any, ...]) -> Tensor | None:
    """Return the first floating tensor."""
    floats = (a for a in arguments if isinstance(a, Tensor))
    return next((a for a in floats if a.is_floating_point()), None)


class _Doubled:
    """A module in float64, as an oracle."""

    def __init__(self, function: Any) -> None:
        self._module = function
        self._made: dict[object, Any] = {}
        self.__doc__ = f"{type(function).__name__}, a module in plain torch."

    def __call__(self, *arguments: Tensor, **keywords: Any) -> Any:
        lead = lead_of(arguments)
        device = "cpu" if lead is None else lead.device
        key = os.getpid(), device
        if key not in self._made:
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():
                self._made[key] = copy.deepcopy(self._module).to(device).double()
        return self._made[key](*arguments, **keywords)


def _inferred(signature: inspect.Signature, label: str) -> dict[str, Parameter]:
    """Return the parameters of an elementwise function.

    Raises:
        BindingError: if one is neither a tensor nor a plain scalar.
    """
    made: dict[str, Parameter] = {}
    for p in signature.parameters.values():
        value: Any = p.default
        plain = value is p.empty or isinstance(value, bool | int | float | str)
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or not plain:
            raise BindingError(
                f"what {p} stands for is not known",
                where=f"reference {label}",
                fix="give inputs=dict(...), of kfuzz.strategies",
            )
        made[p.name] = tensors("*") if value is p.empty else scalar(value)
    return made


def _check_names(
    signature: inspect.Signature, given: Mapping[str, Any], label: str
) -> None:
    """Check that a function takes what is declared, and nothing else.

    Tensors are passed by position: their names are not compared.

    Raises:
        BindingError: naming the parameter.
    """
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    tensors = (TensorParameter, ListParameter)
    scalars = [n for n, p in given.items() if not isinstance(p, tensors)]
    for name in scalars:
        if name not in signature.parameters:
            raise BindingError(
                f"inputs= has a scalar {name!r}, and {label}{signature} takes none",
                where=f"reference {label}",
                fix=suggestion(name, signature.parameters),
            )
    count = len(given) - len(scalars)
    needed = [p for p in parameters if p.default is p.empty and p.name not in scalars]
    needed = [p for p in needed if p.kind is not p.VAR_POSITIONAL]
    if len(needed) > count:
        raise BindingError(
            f"inputs= has nothing for {needed[count].name!r} of {label}{signature}",
            where=f"reference {label}",
        )


# Destinations: which memory a kernel is given for its outputs, and its layout.

Shape = tuple[int, ...]


def destinations(
    layout: str, expected: Mapping[str, Expected], declaration: Declaration
) -> dict[str, Destination]:
    """Return the memory for each output; contiguous where its rank has no other.

    Args:
        layout: "contiguous", "padded" (rows of a wider buffer), "transposed" (the
            last two axes swapped), "stepped" (every second column) or "offset"
            (contiguous, beginning later in its storage).
        expected: shape and dtype of each output.
        declaration: the kernel's.
    """
    made = {}
    for name, wanted in expected.items():
        dtype = str(wanted.dtype).removeprefix("torch.")
        strides, offset = _laid_out(layout, wanted.shape), 0
        if layout == "offset":
            offset = 1
            if declaration.layouts == "inner_contiguous":
                offset = max(1, declaration.alignment // DTYPES[dtype].itemsize)
        made[name] = Destination(wanted.shape, dtype, strides, offset)
    return made


def given(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
    expected: Mapping[str, Expected],
) -> dict[str, Destination] | None:
    """Return the memory that a kernel is given on a case; none if it asks for none.

    Args:
        operator: what is to be computed.
        case: the recipe.
        values: its logical elements.
        declaration: the kernel's.
        expected: what is known of the outputs; may be empty.

    Returns:
        The destinations by output; None where the oracle gives no shape.

    Raises:
        BindingError: if a user's oracle or error model is malformed.
    """
    if not declaration.out:
        return {}
    known = expected or _metadata(operator, case, values, declaration)
    if known is None:
        return None
    wanted = {n: known[n] for n in known if n in declaration.out}
    return destinations(layout_of(case, declaration), wanted, declaration)


def _metadata(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
) -> dict[str, Expected] | None:
    """Return shapes and dtypes where no value is promised; None outside the domain.

    They are those for indices of 0 and finite numbers.
    """
    tame = {
        name: torch.zeros_like(x) if name in operator.indices else x
        for name, x in values.items()
    }
    finite = replace(declaration, nonfinite="mask")
    try:
        return expected_metadata(accept(operator, pose(operator, case, tame, finite)))
    except BindingError:
        raise
    except Exception:
        return None


def _laid_out(layout: str, shape: Shape) -> Shape:
    if layout == "padded" and len(shape) >= 2:
        return contiguous_strides((*shape[:-1], shape[-1] + 1))
    if layout == "stepped" and shape:
        return tuple(2 * step for step in contiguous_strides(shape))
    if layout == "transposed" and len(shape) >= 2:
        *outer, rows, columns = shape
        *steps, one, other = contiguous_strides((*outer, columns, rows))
        return (*steps, other, one)
    return contiguous_strides(shape)
