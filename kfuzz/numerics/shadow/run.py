"""From an oracle and a problem to what is admitted, by the shadow."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Scalar
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.float64 import results_of
from kfuzz.numerics.formats import WHOLE
from kfuzz.numerics.shadow.mode import Shadow
from kfuzz.numerics.shadow.steps import Steps

SAFETY: Final = 4.0
"""How many times the bound a result must miss by to violate.

The bound holds for kernels that take the reference's steps; other forms of the same
function round elsewhere.
"""


@dataclass(frozen=True)
class _Shaded:
    """One result of an oracle with its bound, all of the result's shape."""

    value: Tensor
    error: Tensor
    limited: Tensor


@dataclass(frozen=True)
class _Pass:
    """What one run of an oracle under the shadow gave."""

    results: tuple[_Shaded, ...]
    unknown: tuple[str, ...]


def shadowed(
    oracle: Callable[..., Any],
    problem: Problem,
    *,
    name: str,
    tf32: frozenset[str] = frozenset(),
    kinks: bool = False,
    narrowed: Callable[..., Any] | None = None,
) -> tuple[Acceptance, ...]:
    """Return the acceptance of each of an oracle's results.

    Args:
        oracle: plain torch, of the tensors (positional) and scalars (by keyword).
        problem: inputs and declaration.
        name: the operator's name, for error messages.
        tf32: kinds of products that may take TF32 operands; see `Steps`.
        kinks: whether any value between the one-sided ones is right; see `Steps`.
        narrowed: the same of scalars in float32, as a kernel may get them, where these
            differ: its results are right, too. What an oracle computes of scalars
            alone, such as 1 - a, the shadow does not see.

    Raises:
        BindingError: if a result is no tensor, or a floating one not float64.
        Exception: whatever the oracle raises outside its domain.
    """
    steps = Steps.declared(problem, tf32=tf32, kinks=kinks)
    found = _found(oracle, problem, steps, name)
    factor = 1.0 if steps.own else SAFETY
    if narrowed is not None:
        with suppress(Exception):  # outside its domain
            other = _found(narrowed, problem, steps, name)
            found = _covering(found, other, factor)
    return tuple(_accepted(problem, r, factor, found.unknown) for r in found.results)


def _found(
    oracle: Callable[..., Any], problem: Problem, steps: Steps, name: str
) -> _Pass:
    members = next(iter(problem.tensors.values())).shape[0]
    found = None
    if members > 1:
        found = _batched(oracle, problem, steps, name)
    if found is None:
        rows = [
            _run(oracle, _member(problem, i), problem.scalars, steps, name)
            for i in range(members)
        ]
        found = _stacked(rows)
    return found


def in_float32(scalar: Any, declared: Declaration) -> Any:
    """Return a scalar as a kernel gets it that computes in float32."""
    if declared.accumulator == "float64" or not isinstance(scalar, float):
        return scalar
    narrow = torch.tensor(scalar, dtype=torch.float32).item()
    return narrow if math.isfinite(narrow) else scalar


def _covering(found: _Pass, other: _Pass, factor: float) -> _Pass:
    """Return results whose bounds, taken so many times, cover those of another run."""
    results = []
    for one, also in zip(found.results, other.results, strict=True):
        if one.value.is_floating_point():
            apart = torch.where(
                one.value == also.value, 0.0, (one.value - also.value).abs()
            )
            wider = torch.maximum(one.error, apart / factor + also.error)
            one = replace(one, error=torch.where(wider.isfinite(), wider, one.error))
        results.append(one)
    return replace(found, results=tuple(results))


def _accepted(
    problem: Problem, made: _Shaded, factor: float, unknown: tuple[str, ...]
) -> Acceptance:
    reference = made.value.to(torch.float64)
    vague, limited = ~torch.isfinite(made.error), made.limited > 0
    width = torch.where(vague, 0.0, factor * made.error)
    if problem.attribution:
        # What a narrower arithmetic leaves open is not explained by it.
        vague, limited = torch.zeros_like(vague), torch.zeros_like(limited)
    output, exact = None, None
    if not made.value.is_floating_point():
        output = WHOLE[str(made.value.dtype).removeprefix("torch.")]
        exact = made.value.to(torch.int64)
    accepted = around(
        problem, reference, width, ambiguous=limited & ~vague, undecidable=vague,
        output=output,
    )  # fmt: skip
    named = unknown if unknown and bool(vague.any()) else ()
    return replace(accepted, safety=factor, unknown=named, exact=exact)


def _member(problem: Problem, i: int) -> list[Tensor]:
    return [t[i] for t in problem.tensors.values()]


def _run(
    oracle: Callable[..., Any],
    tensors: Sequence[Tensor],
    scalars: Mapping[str, Scalar],
    steps: Steps,
    name: str,
) -> _Pass:
    """Run an oracle once, on copies: it may write to its arguments."""
    shadow = Shadow(steps)
    tensors = [x.clone() for x in tensors]
    for x in tensors:
        shadow.take(x)
    with torch.no_grad(), shadow:
        returned = oracle(*tensors, **scalars)
    shades = []
    for x in results_of(returned, name=name):
        shade = shadow.shade(x)
        error = torch.where(torch.isnan(shade.error), float("inf"), shade.error)
        if shadow.escaped:
            error = torch.full_like(error, float("inf"))
        shades.append(_Shaded(x, error, shade.limited))
    return _Pass(tuple(shades), tuple(shadow.unknown))


def _stacked(rows: Sequence[_Pass]) -> _Pass:
    results = tuple(
        _Shaded(
            torch.stack([r.value for r in column]),
            torch.stack([r.error for r in column]),
            torch.stack([r.limited for r in column]),
        )
        for column in zip(*(row.results for row in rows), strict=True)
    )
    unknown = dict.fromkeys(name for row in rows for name in row.unknown)
    return _Pass(results, tuple(unknown))


def _batched(
    oracle: Callable[..., Any], problem: Problem, steps: Steps, name: str
) -> _Pass | None:
    """Run an oracle once for all members; None where it does not let itself.

    The first member is run alone besides: what the two disagree about, a constant
    drawn once or an operator that vmap replaces, is no bound for the others.
    """

    def every(*tensors: Tensor) -> Any:
        return torch.vmap(lambda *row: oracle(*row, **problem.scalars))(*tensors)

    try:
        made = _run(every, list(problem.tensors.values()), {}, steps, name)
        alone = _run(oracle, _member(problem, 0), problem.scalars, steps, name)
    except Exception:
        return None
    if made.unknown or len(made.results) != len(alone.results):
        return None
    for all_of, one in zip(made.results, alone.results, strict=True):
        if all_of.value.shape[1:] != one.value.shape:
            return None
        for part in ("value", "error", "limited"):
            first = getattr(all_of, part)[0].to(torch.float64)
            wanted = getattr(one, part).to(torch.float64)
            if not torch.allclose(first, wanted, 1e-9, 0.0, equal_nan=True):
                return None
    return made
