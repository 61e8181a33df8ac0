"""What is accepted of the gradients of an operator.

They run under the running-error shadow, step by step. Where values are not finite
little is judged: implementations leave out products with 0, or do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.gradients.rules import EVERY, PREFIX, STORED, Rule
from kfuzz.core.verdict import CaseReport, Failure, Verdict

# So many results of the greatest magnitude are added.
_HEADROOM: Final = 16
# Of the results that are stored on the way, two are.
_TERMS: Final = 2


def derived_bound(
    name: str,
    products: "Sequence[Callable[..., tuple[nm.Tensor, ...]]]",
    wanted: Sequence[str],
    rule: Rule,
    *,
    kinks: bool = False,
) -> "Callable[[nm.Problem], nm.Accepted]":
    """Return the error model of gradients; it takes many members at once.

    Args:
        name: the gradients' name, for messages.
        products: each gives the gradients, of the arguments and of the outputs' ones;
            what lies between two is right.
        wanted: the arguments whose gradients are asked for, in order.
        rule: how the operator is differentiated.
        kinks: whether any value between the one-sided ones is right where the shadow
            finds none of the two.
    """

    def accept(problem: "nm.Problem") -> "nm.Accepted":
        """Return the acceptance of each gradient, by output."""
        found = {n: rule.exact[n](problem) for n in wanted if n in rule.exact}
        if len(found) < len(wanted):
            made = [_shadowed(name, p, rule, problem, kinks) for p in products]
            hulls = (nm.hull(*column) for column in zip(*made, strict=True))
            found = dict(zip(wanted, hulls, strict=True)) | found
        return {f"d{n}": defined(problem, found[n]) for n in wanted}

    return accept


def _shadowed(
    name: str,
    product: "Callable[..., tuple[nm.Tensor, ...]]",
    rule: Rule,
    problem: "nm.Problem",
    kinks: bool,
) -> "tuple[nm.Acceptance, ...]":
    kept = frozenset(rule.stored.split())
    posed = problem
    if EVERY in kept:
        claims = replace(problem.declaration, intermediates="output")
        posed = replace(problem, declaration=claims)
    alignment = problem.declaration.causal_alignment

    def run(*tensors: "nm.Tensor", **scalars: Any) -> Any:
        if rule.formula is not None:
            scalars |= {STORED: problem.output.dtype, "causal_alignment": alignment}
            # A view of an argument has no error of its own to keep.
            return tuple(made.clone() for made in product(*tensors, **scalars))
        # Nothing is kept from call to call: what an oracle does may follow values.
        with _decomposed()(kept, problem.output.dtype):
            return product(*tensors, **scalars)

    found = nm.shadowed(run, posed, name=name, kinks=kinks, form=rule.linear)
    if rule.linear:
        return found
    # Other forms than the derived one are meant too: no factor of the bound is its.
    return tuple(replace(in_any_order(problem, a), safety=1.0) for a in found)


@cache
def _decomposed() -> Any:
    """Return the mode in which operators that others define run as those."""
    import torch
    from torch._decomp import core_aten_decompositions

    from kfuzz.numerics.formats import Uncompiled

    table = core_aten_decompositions()

    class Decomposed(Uncompiled):  # type: ignore[no-untyped-call]
        """Above the shadow, which sees what autograd's formulas consist of."""

        def __init__(self, kept: frozenset[str], stored: Any) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.kept, self.stored = kept, stored

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = self._steps(func, args, kwargs or {})
            if func.overloadpacket.__name__ in self.kept:
                # Rounded, or not: a cast is both to the shadow.
                made = torch.ops.aten._to_copy(made, dtype=self.stored)
            return made

        def _steps(self, func: Any, args: Any, kwargs: Any) -> Any:
            with self:
                if func in table:
                    return table[func](*args, **kwargs)
                made = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made is NotImplemented else made

    return Decomposed


def in_any_order(problem: "nm.Problem", made: "nm.Acceptance") -> "nm.Acceptance":
    """Return the acceptance, range-limited where some order may overflow.

    Where intermediate results are stored, in the output's format, one of another order
    may be beyond that: a finite result is judged, and one that is not is admitted.
    """
    import torch

    shape = (-1, *[1] * (made.low.dim() - 1))
    total, greatest, reach = reach_of(problem)
    limit = nm.Accumulation.declared(problem.declaration).limit / _HEADROOM
    wild = (total.clamp(min=1) * reach > limit).reshape(shape)
    classes = made.classes
    if problem.declaration.intermediates == "output":
        beyond = (_TERMS * greatest * reach > problem.output.max_finite).reshape(shape)
        more = nm.NAN | nm.POSITIVE_INF | nm.NEGATIVE_INF
        may = beyond & ((classes & nm.FINITE) != 0)
        classes = torch.where(may, classes | more, classes)
    return replace(made, ambiguous=made.ambiguous | wild, classes=classes)


def reach_of(problem: "nm.Problem") -> "tuple[nm.Tensor, nm.Tensor, nm.Tensor]":
    """Return how far some order of factors or terms may reach, by member.

    Kernels multiply gradients with one argument or with another first, and sum before
    or after: no intermediate result is above the sum of the gradients times the
    greatest element of each argument, of which a few are added. Arguments may be
    multiplied with each other before a gradient makes them small, or 0.

    Returns:
        The sum of the gradients, the greatest of them, and the product of the greatest
        elements of the arguments.
    """
    import torch

    floats = {n: x for n, x in problem.tensors.items() if x.is_floating_point()}
    first = next(iter(floats.values()))
    reach, total = first.new_ones(len(first)), first.new_zeros(len(first))
    greatest = total
    for name, x in floats.items():
        rows = x.abs().unsqueeze(-1).flatten(1)
        top = rows.amax(1) if rows.shape[1] else torch.zeros_like(total)
        if name.startswith(PREFIX):
            total, greatest = total + rows.sum(1), torch.maximum(greatest, top)
        else:
            reach = reach * top.clamp(min=1)
    return total, greatest, reach


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
