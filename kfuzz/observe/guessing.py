"""Which operator a function computes: one with whose bound its seen results agree."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.monitor.asserting import assert_conforms
from kfuzz.observe.seen import Callee, Seen, Shape, Unknown

# Names that arguments have elsewhere, by the operators' own.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "x": ("input", "inputs", "hidden", "hidden_states", "_input", "src", "a"),
    "weight": ("w", "gamma", "scale", "affine_scaling_weight"),
    "bias": ("b", "beta", "affine_shifting_bias"),
    "eps": ("epsilon", "variance_epsilon", "rms_norm_eps"),
    "dim": ("axis",),
    "target": ("targets", "labels", "label", "y_true", "y"),
    "logits": ("input", "_input", "x"),
    "residual": ("r", "res"),
    "num_groups": ("groups",),
}
# Trials of one operator's arguments on one function.
_TRIALS: Final = 12


@dataclass(frozen=True)
class Guess:
    """An operator with which all calls agree that could be compared.

    Attributes:
        operator: its name.
        given: the function's argument for each of the operator's parameters.
        result: which of the results it is.
        claims: what has to be declared for that.
        calls: how many calls agreed.
        others: operators with which they agree as well.
    """

    operator: str
    given: Mapping[str, str]
    result: int
    claims: Mapping[str, str]
    calls: int
    others: tuple[str, ...] = field(default=())


def guess(callee: Callee) -> Guess | None:
    """Return the operator that a function seems to compute, None if none agrees."""
    calls = [c for c in callee.calls if _is_whole(c)]
    if not calls:
        return None
    # What needs no declaration first.
    for declared in (False, True):
        found = [
            made
            for operator in OPERATORS.values()
            if (made := _of_operator(operator, calls, declared=declared)) is not None
        ]
        if found:
            break
    else:
        return None
    # What has a part of its own for more of the arguments says more.
    found.sort(key=lambda g: (-len(g.given), len(OPERATORS[g.operator].inputs)))
    best, *rest = found
    alike = tuple(g.operator for g in rest if len(g.given) == len(best.given))
    return replace(best, others=alike)


def agreeing_with(operator: Operator, callee: Callee) -> Guess | None:
    """Return how a function's calls agree with one operator, None if they do not."""
    calls = [c for c in callee.calls if _is_whole(c)]
    for declared in (False, True):
        if calls and (made := _of_operator(operator, calls, declared=declared)):
            return made
    return None


def _of_operator(
    operator: Operator, calls: list[Seen], *, declared: bool
) -> Guess | None:
    """Return how an operator agrees with all calls, None if it does not."""
    claims: list[dict[str, str]] = [{}]
    if declared:
        claims = [{"algorithm": name} for name in operator.algorithms]
        claims.append({"intermediates": "output"})
    for given in itertools.islice(_matches(operator, calls[0]), _TRIALS):
        for claim in claims:
            result = _agreeing(operator, given, calls, claim)
            if result is not None:
                return Guess(operator.name, given, result, claim, len(calls))
    return None


def _is_whole(call: Seen) -> bool:
    """Whether all elements of a call are known, and no argument was left out."""
    if call.results is None or any(isinstance(v, Unknown) for v in call.given.values()):
        return False
    shapes = [v for v in (*call.given.values(), *call.results) if isinstance(v, Shape)]
    return bool(shapes) and all(s.values is not None for s in shapes)


def _matches(operator: Operator, call: Seen) -> Iterator[dict[str, str]]:
    """Yield ways to give a function's arguments to an operator's parameters.

    All tensors are given; numbers where their names say so.
    """
    tensors = [n for n, v in call.given.items() if isinstance(v, Shape)]
    scalars = {}
    for name in operator.scalars:
        own = next((n for n in call.given if _is_called(n, name)), None)
        if own is not None and not isinstance(call.given[own], Shape):
            scalars[name] = own
    names = list(operator.tensors)
    if len(tensors) > len(names):
        return
    needed = {n for n in names if not operator.tensors[n].optional}
    chosen = [c for c in itertools.combinations(names, len(tensors)) if needed <= {*c}]
    ordered = []
    for places in chosen:
        for order in itertools.permutations(tensors):
            pairs = dict(zip(places, order, strict=True))
            fit = all(
                operator.tensors[p].variadic
                or len(operator.tensors[p].names) == len(call.given[n].sizes)
                for p, n in pairs.items()
            )
            if fit:
                named = sum(_is_called(n, p) for p, n in pairs.items())
                in_order = [*order] == tensors
                ordered.append((-named, not in_order, pairs))
    ordered.sort(key=lambda o: o[:2])
    for _, _, pairs in ordered:
        yield {**pairs, **scalars}


def _is_called(name: str, parameter: str) -> bool:
    """Whether an argument of that name is a parameter's, as names go."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    known = (parameter, *_ALSO.get(parameter, ()))
    return plain in {re.sub(r"[^a-z]", "", k) for k in known}


def _agreeing(
    operator: Operator,
    given: Mapping[str, str],
    calls: list[Seen],
    claims: Mapping[str, str],
) -> int | None:
    """Return which result agrees with an operator in every call, None if none does."""
    assert calls[0].results is not None
    for number, first in enumerate(calls[0].results):
        if not isinstance(first, Shape):
            continue
        if all(_agrees(operator, given, call, number, claims) for call in calls):
            return number
    return None


def _agrees(
    operator: Operator,
    given: Mapping[str, str],
    call: Seen,
    number: int,
    claims: Mapping[str, str],
) -> bool:
    values = {
        p: v.values if isinstance(v := call.given.get(n), Shape) else v
        for p, n in given.items()
    }
    if call.results is None or len(call.results) <= number:
        return False
    result = call.results[number]
    if not isinstance(result, Shape) or not _says_something(result.values):
        return False
    tensors = [values.get(n) for n in operator.tensors]
    while tensors and tensors[-1] is None:
        tensors.pop()
    scalars = {n: values[n] for n in operator.scalars if n in values}
    try:
        assert_conforms(result.values, operator, *tensors, **scalars, **claims)
    except Exception:  # whatever it is: it does not agree
        return False
    return True


def _says_something(values: torch.Tensor) -> bool:
    """Whether a result is such that agreement means anything."""
    return bool(values.numel()) and bool((values != 0).any())
