"""A shape too large for an oracle: the kernel runs on all of it, rows are judged.

Only where the reference shows that its rows do not depend on one another. Which rows
are judged, a kernel cannot know.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.oracle import accept, expected_metadata, pose
from kfuzz.contracts.relation import compare_all
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import Case
from kfuzz.core.untrusted import KernelEnded
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.execution.calls.results import read_outputs
from kfuzz.judge.kernelbench.operator import Reference
from kfuzz.judge.kernelbench.problem import results
from kfuzz.numerics.comparator.compare import KIND_OF, Outcome

# Stretches of rows that are judged, and elements of one.
_STRETCHES: Final = 6
_ELEMENTS: Final = 1 << 22


class RowsJudge:
    """Judges one call of a kernel by stretches of rows."""

    def __init__(self, kernel: BoundKernel, reference: Reference, case: Case) -> None:
        self._kernel = kernel
        self._reference = reference
        self._case = case
        first = next(iter(case.tensors.values()))
        self._row = first.axes[0] if first.axes else ""

    def report(self, values: Mapping[str, Tensor]) -> CaseReport:
        """Call the kernel on all, and judge rows.

        Raises:
            KernelEnded: its process ended instead.
        """
        if not self._separable(values):
            return CaseReport({}, unsupported="rows of its result depend on others")
        try:
            with torch.no_grad():
                made = results(self._kernel.on(*values.values()))
        except KernelEnded:
            raise
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            failure = Failure(
                "K-LIV-01", Kind.RAISES, f"raises {text}", detail=type(error).__name__
            )
            return _violates(failure)
        for low, high in self._stretches():
            found = self._judged(values, made, low, high)
            if found is not None:
                return _violates(found)
        return CaseReport({"K-VAL-01": Verdict.CONFORMS, "K-LIV-01": Verdict.CONFORMS})

    def _stretches(self) -> list[tuple[int, int]]:
        """Return the first and the last rows, and some in between."""
        rows = self._case.dims[self._row]
        count = max(1, min(rows, _ELEMENTS * rows // self._case.elements))
        chance = generator(self._case.seed, Purpose.ROWS)
        starts = [0, rows - count]
        starts += [chance.randrange(rows - count + 1) for _ in range(_STRETCHES - 2)]
        return [(start, start + count) for start in dict.fromkeys(starts)]

    def _part(
        self, values: Mapping[str, Tensor], low: int, high: int
    ) -> tuple[Case, dict[str, Tensor]]:
        """Return the case of some rows alone."""
        tensors, parts = {}, {}
        for name, spec in self._case.tensors.items():
            shape, x = spec.shape, values[name]
            if self._row in spec.axes:
                axis = spec.axes.index(self._row)
                x = x.narrow(axis, low, high - low)
                shape = (*shape[:axis], high - low, *shape[axis + 1 :])
            tensors[name] = replace(spec, shape=shape, strides=None)
            parts[name] = x.contiguous()
        return replace(self._case, tensors=tensors), parts

    def _judged(
        self,
        values: Mapping[str, Tensor],
        made: tuple[object, ...],
        low: int,
        high: int,
    ) -> Failure | None:
        """Return what is wrong with some rows."""
        operator = self._kernel.operator
        case, parts = self._part(values, low, high)
        problem = pose(operator, case, parts, self._kernel.declaration)
        accepted = accept(operator, problem)
        cut = tuple(
            y.narrow(0, low, high - low)
            if isinstance(y, Tensor) and y.dim() and y.shape[0] >= high
            else y
            for y in made
        )
        outputs, _, wrong = read_outputs(
            cut if len(cut) > 1 else cut[0],
            expected_metadata(accepted),
            self._reference.form.device,
            copy=False,
        )
        if wrong is not None:
            return Failure("K-MET-01", wrong.kind, wrong.message, output=wrong.output)
        for name, compared in compare_all(outputs, accepted).items():
            if not bool(compared.missed.any()):
                continue
            at = int(compared.outcomes.flatten().argmax())
            severest = Outcome(int(compared.outcomes.flatten()[at]))
            got = float(outputs[name].reshape(-1)[at])
            wanted = float(accepted[name].reference.reshape(-1)[at])
            return Failure(
                "K-VAL-01", KIND_OF[severest],
                f"{name} = {got:.9g}, expected {wanted:.9g} in rows {low} to "
                f"{high - 1} of {self._case.dims[self._row]}, at the benchmarked shape",
                output=name,
            )  # fmt: skip
        return None

    def _separable(self, values: Mapping[str, Tensor]) -> bool:
        """Whether the reference gives rows alone what it gives them among others."""
        if (
            self._row not in self._reference.shapes.free
            or self._case.dims[self._row] < 4
        ):
            return False
        operator, claims = self._kernel.operator, self._kernel.declaration
        _, many = self._part(values, 0, 3)
        case, one = self._part(values, 1, 2)
        try:
            whole = results(self._reference(*many.values()))
            accepted = accept(operator, pose(operator, case, one, claims))
        except Exception:
            return False
        if any(not y.dim() or y.shape[0] != 3 for y in whole):
            return False
        cut = {n: y[1:2] for n, y in zip(operator.outputs, whole, strict=True)}
        if expected_metadata(accepted).keys() != cut.keys():
            return False
        compared = compare_all(cut, accepted).values()
        return not any(bool(c.missed.any()) for c in compared)


def _violates(failure: Failure) -> CaseReport:
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=failure)
