"""The oracle's side of a case: the problem posed and what is admitted for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.membership import alone, count, joined, takes_members
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.relation import related
from kfuzz.contracts.unpromised import is_concerned, masked
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Scalar
from kfuzz.core.results import OtherForm, named, output_of
from kfuzz.numerics.acceptance import Acceptance, Problem, whole
from kfuzz.numerics.elements import identical
from kfuzz.numerics.float64 import InOwnIntegers, in_float64
from kfuzz.numerics.formats import FORMATS, WHOLE, is_subnormal
from kfuzz.numerics.models.elementwise import Elementwise
from kfuzz.numerics.run import Expected
from kfuzz.numerics.shadow import in_float32, shadowed
from kfuzz.strategies.parameters import INDEX_ROLE


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
            same = _agree(x.to(torch.float64), y)
        elif x.dtype.itemsize < a.output.dtype.itemsize:  # a wider result is meant
            continue
        else:
            same, right = _agree(x, y), x.to(torch.int64)
            wraps, value = same & (right != y.to(torch.int64)), x.to(torch.float64)
            a = replace(
                a,
                exact=torch.where(wraps, right, a.exact),
                reference=torch.where(wraps, value, a.reference),
                low=torch.where(wraps, value, a.low),
                high=torch.where(wraps, value, a.high),
            )
        made[name] = replace(a, undecidable=a.undecidable | ~same)
    return made


def open_to_wider(
    accepted: Mapping[str, Acceptance],
    oracle: Callable[..., Any],
    problem: Problem,
    dtypes: Sequence[torch.dtype | None] = (),
) -> dict[str, Acceptance]:
    """Return acceptances undecided where wider integers come to something else.

    For an oracle that computed in its arguments' own integers, of fewer than 64 bits: a
    kernel that computes with wider ones is right too. What differs by wrapping alone
    stays decided.

    Args:
        accepted: what is accepted of each result of one member.
        oracle: takes integers as int64, floats as float64.
        problem: the inputs, integers as int64, and scalars.
        dtypes: of the results as a kernel stores them; those of `accepted` by default.
    """
    given = [x[0] for x in problem.tensors.values()]
    try:
        wide = in_float64(oracle, given, dict(problem.scalars), name="the reference")
    except Exception:  # it is not defined for these
        return dict(accepted)
    if len(wide) != len(accepted):
        return dict(accepted)
    made = {}
    stored = dtypes or [None] * len(wide)
    for (name, a), y, dtype in zip(accepted.items(), wide, stored, strict=True):
        x = a.reference if a.exact is None else a.exact
        if x.shape[1:] == y.shape:
            kind = dtype or a.output.dtype
            own = x if a.exact is None else x.to(kind)
            a = replace(a, undecidable=a.undecidable | ~_agree(own, y[None]))
        made[name] = a
    return made


def _agree(x: Tensor, wide: Tensor) -> Tensor:
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
    return replace(accepted, undecidable=accepted.undecidable | outside)


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
        made[name] = replace(a, undecidable=a.undecidable | own)
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


def _with(
    oracle: Callable[..., Any], scalars: Mapping[str, Any], *tensors: Tensor, **_: Any
) -> Any:
    return oracle(*tensors, **scalars)


def _accept(operator: Operator, problem: Problem) -> dict[str, Acceptance]:
    if operator.error_model is None:
        oracle, names = _in_a_row(operator, problem)
        claims, given = problem.declaration, problem.scalars
        scalars = {n: in_float32(v, claims) for n, v in given.items()}
        narrowed = None if scalars == given else partial(_with, oracle, scalars)
        found = shadowed(oracle, problem, name=operator.name, narrowed=narrowed)
        return dict(zip(names, found, strict=True))
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
    operator: Operator, problem: Problem
) -> tuple[Callable[..., Any], list[str]]:
    """Return the oracle with its results as one tuple; their names once it has run.

    Raises:
        BindingError: by the oracle, if it does not give one result for each output.
    """
    oracle = operator.oracle_on(problem.tensors)
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
    oracle, names = _in_a_row(operator, problem)

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
