"""What a rule admits of the gradients of an operator.

The rule runs under the running-error shadow; what is a sum, a product or a move of
what was given has the bound of those. Where values are not finite little is judged:
implementations leave out products with 0, or do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.gradients.rules import PREFIX, Either, Given, Gradients, Rule
from kfuzz.core.verdict import CaseReport, Failure, Verdict

# So many results of the greatest magnitude are added.
_HEADROOM: Final = 16


def rule_bound(
    name: str, rule: Rule, wanted: Sequence[str]
) -> "Callable[[nm.Problem], nm.Accepted]":
    """Return the error model of gradients by a rule; it takes many members at once.

    Args:
        name: the gradients' name, for messages.
        rule: the rule.
        wanted: the arguments whose gradients are asked for, in order.
    """

    def accept(problem: "nm.Problem") -> "nm.Accepted":
        """Return the acceptance of each gradient, by output."""
        shadow = [n for n in wanted if n not in rule.exact]
        found = _shadowed(name, rule, problem, shadow) if shadow else {}
        found |= {n: rule.exact[n](problem) for n in wanted if n in rule.exact}
        return {f"d{n}": defined(problem, found[n]) for n in wanted}

    return accept


def _shadowed(
    name: str, rule: Rule, problem: "nm.Problem", wanted: Sequence[str]
) -> "dict[str, nm.Acceptance]":
    from kfuzz.numerics.shadow import shadowed

    declared = {"causal_alignment": problem.declaration.causal_alignment}
    kinked: dict[str, bool] = {}

    def spelled(*tensors: "nm.Tensor", **scalars: Any) -> "tuple[nm.Tensor, ...]":
        given = given_of(
            tuple(problem.tensors), tensors, {**scalars, **declared},
            stored=problem.output.dtype, data=problem.format.unit,
        )  # fmt: skip
        made = rule.formula(given)
        parts: list[nm.Tensor] = []
        for argument in wanted:
            one, shape = made[argument], given[argument].shape
            kinked[argument] = isinstance(one, Either)
            ends = (one.value, one.one, one.other) if isinstance(
                one, Either
            ) else (one,)  # fmt: skip
            # A view of an argument has no error of its own to keep.
            parts += [end.expand(shape).clone() for end in ends]
        return tuple(parts)

    results = list(shadowed(spelled, problem, name=name))
    found = {}
    for argument in wanted:
        made = results.pop(0)
        if kinked[argument]:
            made = nm.hull(made, results.pop(0), results.pop(0))
        # A rule averages forms: no factor of it is the one that was derived.
        found[argument] = replace(in_any_order(problem, made), safety=1.0)
    return found


def given_of(
    names: Sequence[str],
    tensors: "Sequence[nm.Tensor]",
    scalars: dict[str, Any],
    *,
    stored: Any = None,
    data: float = 0.0,
) -> Given:
    """Return what a rule is given, from arguments in order, gradients last."""
    every = dict(zip(names, tensors, strict=True))
    return Given(
        tensors={n: t for n, t in every.items() if not n.startswith(PREFIX)},
        grads={n[len(PREFIX):]: t for n, t in every.items() if n.startswith(PREFIX)},
        scalars=scalars,
        stored=stored,
        data=data,
    )  # fmt: skip


def plain(gradients: Gradients, names: Sequence[str]) -> "tuple[nm.Tensor, ...]":
    """Return one value of each gradient."""
    made = (gradients[name] for name in names)
    return tuple(one.value if isinstance(one, Either) else one for one in made)


def in_any_order(problem: "nm.Problem", made: "nm.Acceptance") -> "nm.Acceptance":
    """Return the acceptance, range-limited where some order may overflow."""
    wild = beyond_range(problem).reshape(-1, *[1] * (made.low.dim() - 1))
    return replace(made, ambiguous=made.ambiguous | wild)


def beyond_range(problem: "nm.Problem") -> "nm.Tensor":
    """Return the members in which some order of factors or terms may overflow.

    Kernels multiply gradients with one argument or with another first, and sum before
    or after: no intermediate result is above the sum of the gradients times the
    greatest element of each argument, of which a few are added. Arguments may be
    multiplied with each other before a gradient makes them small, or 0.
    """
    reach: nm.Tensor | None = None
    total: nm.Tensor | None = None
    for name, x in problem.tensors.items():
        if not x.is_floating_point():
            continue
        rows = x.abs().unsqueeze(-1).flatten(1)
        if name.startswith(PREFIX):
            total = rows.sum(1) if total is None else total + rows.sum(1)
        elif rows.shape[1]:
            top = rows.amax(1).clamp(min=1)
            reach = top if reach is None else reach * top
    assert total is not None
    limit = nm.Accumulation.declared(problem.declaration).limit / _HEADROOM
    return (total if reach is None else total.clamp(min=1) * reach) > limit


def defined(problem: "nm.Problem", made: "nm.Acceptance") -> "nm.Acceptance":
    """Return the acceptance with what nobody promises left undecided.

    A gradient that is not finite, of finite arguments, and any gradient of a case with
    a NaN or an infinity; but a NaN in the gradient of an output reaches what depends on
    it where `nonfinite="propagate"` is declared.
    """
    import torch

    special = ~torch.isfinite(made.reference)
    whole: nm.Tensor | None = None
    told: nm.Tensor | None = None
    for name, x in problem.tensors.items():
        if not x.is_floating_point():
            continue
        rows = x.unsqueeze(-1).flatten(1)  # a gradient may be one number
        wrong = ~torch.isfinite(rows).all(1)
        whole = wrong if whole is None else whole | wrong
        # NaN alone, in the gradients of outputs alone, tells where it must arrive.
        lone = wrong & (
            ~torch.isinf(rows).any(1)
            if name.startswith(PREFIX)
            else torch.zeros_like(wrong)
        )
        good = ~wrong | lone
        told = good if told is None else told & good
    assert whole is not None
    assert told is not None
    shape = (-1, *[1] * (made.reference.dim() - 1))
    broken = whole.reshape(shape).expand_as(special)
    open_still = special | broken
    if problem.declaration.nonfinite == "propagate":
        reached = broken & told.reshape(shape) & torch.isnan(made.reference)
        open_still = open_still & ~reached
    return replace(made, undecided=made.undecided | open_still)


# The class of a gradient's faults: K-GRD-01, but for memory and liveness.

_OF_GRADIENTS: Final = frozenset(c.id for c in ATTRIBUTION if c.of_gradients)


def in_force(classes: frozenset[str], every: frozenset[str]) -> frozenset[str]:
    """Return the classes that a gradient is judged under.

    K-GRD-01 stands for all that are not about memory and liveness.
    """
    if "K-GRD-01" not in classes:
        return classes & _OF_GRADIENTS
    return (classes & _OF_GRADIENTS) | (every - _OF_GRADIENTS) | {"K-GRD-01"}


def attributed(report: CaseReport, classes: frozenset[str]) -> CaseReport:
    """Return the report of a gradient's case under the classes that bind gradients."""
    verdicts = {n: v for n, v in report.verdicts.items() if n in _OF_GRADIENTS}
    value = report.verdicts.get("K-VAL-01")
    if "K-GRD-01" in classes and value is not None:
        verdicts.setdefault("K-GRD-01", value)
    failure, suspicion = report.failure, report.suspicion
    if suspicion is not None:
        suspicion = replace(suspicion, failure=_under(suspicion.failure))
    if failure is None or failure.contract in _OF_GRADIENTS:
        return replace(report, verdicts=verdicts, suspicion=suspicion)
    verdicts["K-GRD-01"] = Verdict.VIOLATES
    return replace(report, verdicts=verdicts, failure=_under(failure))


def _under(failure: Failure) -> Failure:
    """Return a failure under K-GRD-01, with the class that it would be."""
    said = f"{failure.contract} in a gradient: {failure.message}"
    return replace(failure, contract="K-GRD-01", message=said)
