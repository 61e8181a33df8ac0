"""What users brought to judge their kernels, tried before a search begins."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis.errors import HypothesisException

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.core_domain import aspects_beyond_core
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.case_surroundings import CONTIGUOUS
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import NOWHERE, Case
from kfuzz.core.verdict import VALUE_KINDS, CaseReport, Kind
from kfuzz.engine.search.case_drawing import search_round, strategy_of
from kfuzz.engine.search.round import KernelSearch
from kfuzz.evaluation.bindings.oracle import Examined, examine, in_dtype, is_brought
from kfuzz.evaluation.bindings.places import broken, defined
from kfuzz.evaluation.bindings.recipe import examine_recipe
from kfuzz.targets.launching import Launch

# Cases drawn, and how many of them are tried: those nearest to the core domain.
_DRAWN: Final = 24
_TRIED: Final = 4
_ELEMENTS: Final = 2048
# Elements of a tensor below which others are preferred.
_FEW: Final = 8
# Cases on which a kernel and its oracle have to differ, all of them.
_COMPARED: Final = 3


class Bindings:
    """Tries the bindings of a run: first without their kernels, then beside them.

    Args:
        kernels: of the run.
        on_host: whether they run on the CPU, where the oracles are tried.

    Raises:
        BindingError: if what is to judge a kernel can judge no case of it.
    """

    def __init__(self, kernels: Sequence[KernelSearch], *, on_host: bool) -> None:
        self._open: dict[str, Examined] = {}
        for kernel in kernels:
            bound = kernel.loaded.kernel
            # A candidate's operator is made of another's model, with rules of its own.
            if kernel.loaded.target.reference:
                continue
            brought = is_brought(bound.operator.forward or bound.operator)
            if bound.operator.forward is not None or not (
                brought or isinstance(bound.function, Launch)
            ):
                continue
            cases = small_cases(bound, kernel.budget)
            if brought:
                examined = examine(bound, cases, on_host=on_host)
                self._open[kernel.node_id] = examined
            examine_recipe(bound, cases)

    def awaits(self, kernel: KernelSearch) -> bool:
        """Whether a kernel is still to be held against what a user brought for it."""
        return kernel.node_id in self._open

    def compare(self, kernel: KernelSearch) -> None:
        """Hold a kernel's results against its oracle's, once: are they of one kind?

        Raises:
            BindingError: if the oracle raises where the kernel runs, no case gives
                results of one shape, or the oracle alone gives a constant.
        """
        examined = self._open.get(kernel.node_id)
        if examined is None:
            return
        bound, reports = kernel.loaded.kernel, []
        for case in examined.judged[:_COMPARED]:
            reports.append(kernel.runner.judge(case, Depth.BASE))
            if not _differs(reports[-1], constant=examined.constant):
                break
        else:
            if reports:
                self._refuse(bound, reports)
        del self._open[kernel.node_id]

    def _refuse(self, bound: BoundKernel, reports: Sequence[CaseReport]) -> None:
        if why := next((r.oracle_raised for r in reports if r.oracle_raised), ""):
            raise broken(
                bound,
                f"the oracle raises in each of {len(reports)} small cases where the "
                f"kernel runs: {why}",
                "It is given tensors there: make what it needs on their device",
            )
        first = reports[0].failure
        assert first is not None
        where = defined(bound.operator.oracle)
        if first.kind is Kind.WRONG_SHAPE:
            raise broken(
                bound,
                f"kernel and oracle return different shapes in each of {len(reports)} "
                f"small cases: {first.message} (the oracle is {where})",
                "Nothing can be compared until both return one shape",
            )
        raise broken(
            bound,
            f"the oracle returns a constant, whatever its inputs are, and the kernel "
            f"does not: {first.message} (the oracle is {where})",
            "Mend the oracle: its result must depend on its inputs",
        )


def _differs(report: CaseReport, *, constant: bool) -> bool:
    failure = report.failure
    if report.oracle_raised:
        return True
    if failure is None:
        return False
    return failure.kind is Kind.WRONG_SHAPE or (
        constant and failure.kind in VALUE_KINDS
    )


def small_cases(kernel: BoundKernel, budget: SizeBudget) -> tuple[Case, ...]:
    """Return a few small cases of a kernel's domain, contiguous, the plainest first.

    Equal for equal kernels; none where drawing gives none.
    """
    found: list[Case] = []

    def take(case: Case) -> None:
        if all(0 < s.numel <= _ELEMENTS for s in case.tensors.values()):
            found.append(_plain(kernel, case))

    try:
        strategy = strategy_of(kernel, budget)
        if strategy is None:
            return ()
        search_round(strategy, take, cases=_DRAWN, seed_value=0, climb=False)
    except (BindingError, HypothesisException):  # the search says so, or has large ones
        return ()

    def beyond(case: Case) -> tuple[int, bool]:
        aspects = aspects_beyond_core(
            case, kernel.operator, kernel.explicit, finite=True,
            lacking=kernel.arguments.lacking(case.tensors),
        )  # fmt: skip
        return len(aspects), case.elements < len(case.tensors) * _FEW

    return tuple(sorted(found, key=beyond)[:_TRIED])


def _plain(kernel: BoundKernel, case: Case) -> Case:
    """Return a case in the first data type, contiguous and away from any page."""
    tensors = {n: replace(s, strides=None, offset=0) for n, s in case.tensors.items()}
    made = replace(case, tensors=tensors, edge=NOWHERE, layout=CONTIGUOUS)
    return in_dtype(kernel.operator, made, kernel.declaration.dtypes[0])
