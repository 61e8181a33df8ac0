"""The prefilter: a burst of members that share a structure, by what is always on.

All that is seen here is seen again by the evaluator, in a case of its own, before it is
reported: it can miss, but gives no false alarm. What it looks at is what the base run
of a case shows: exceptions, metadata, changed arguments, guard zones, and the values
against the oracle on memory poisoned one way in one member, the other way in the next.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.contracts.language import Batch
from kfuzz.contracts.operator import batchable
from kfuzz.contracts.oracle import accept, expected_metadata, pose_members
from kfuzz.contracts.reading import is_friendly
from kfuzz.core.budget import Burst, Screened, Suspect
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, config_of, drawn_edge, settled
from kfuzz.core.value_families import is_hostile
from kfuzz.evaluation.calling import invocation
from kfuzz.execution.calls.batches import BatchRun, run_batch
from kfuzz.execution.calls.compiling import by_kernel
from kfuzz.execution.device.backends import fault_of
from kfuzz.execution.memory.slots import Arena
from kfuzz.execution.values.fills import batch_values
from kfuzz.execution.values.items import item
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import summarise

_TELLS: Final = {c.id: c.in_batch for c in ATTRIBUTION if c.in_batch is not None}
_OF_VALUES: Final = frozenset(c.id for c in ATTRIBUTION if c.of_values)

ALWAYS_ON: Final = frozenset(_TELLS)
"""Classes that every member of a burst is held to."""


class Prefilter:
    """Screens bursts of one kernel, one after the other.

    Attributes:
        kernel: the bound kernel.
        on_run: called now and then while members are made, run and judged, for a
            watchdog.
    """

    def __init__(
        self, kernel: BoundKernel, device: torch.device, classes: frozenset[str]
    ) -> None:
        """Make what bursts share.

        Args:
            kernel: the bound kernel.
            device: where it runs.
            classes: ids of the contract classes in force.
        """
        self.kernel = kernel
        self.on_run: Callable[[], None] = lambda: None
        self._device = device
        operator, claims = kernel.operator, kernel.declaration
        self._classes = frozenset(
            name
            for name in classes & ALWAYS_ON
            if CLASSES[name].binds(operator, claims)
        )
        self._arena = Arena(device)

    def screen(self, burst: Burst) -> Screened:
        """Run and screen the members of a burst.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        if why := declined(self.kernel, burst.case):
            return Screened(unsupported=why)
        operator, claims = self.kernel.operator, self.kernel.declaration
        case = settled(burst.case, claims)
        values = batch_values(burst, self._device, self.on_run)
        self.on_run()  # no wait of these is for the kernel
        problem = pose_members(operator, case, values, claims)
        try:
            accepted = accept(operator, problem)
        except BindingError:
            raise
        except Exception as error:  # outside the oracle's domain
            return Screened(unsupported=f"the oracle raises {type(error).__name__}")
        self.on_run()
        expected = expected_metadata(accepted)
        first = {name: x[0] for name, x in values.items()}
        asked = invocation(self.kernel, case, first, expected, config_of(case))
        if asked is None:
            return Screened(unsupported="no shape is known for its outputs")
        run = run_batch(
            asked, values, arena=self._arena, step=self.on_run, seconds=burst.seconds
        )
        if run.unsupported or run.lost:
            lost = bool(run.lost)
            return Screened(unsupported=run.unsupported, lost=run.lost, spent=lost)
        return self._told(case, run, accepted, magnitudes(values))

    def _told(
        self,
        case: Case,
        run: BatchRun,
        accepted: Mapping[str, Acceptance],
        greatest: Tensor | None,
    ) -> Screened:
        """Return what a run of all members says, after one wait for the device."""
        summaries = summarise(run.outputs, accepted).values()
        parts = [run.touched.to(torch.int64).unsqueeze(0)]
        parts += [made.table for made in summaries]
        if greatest is not None:
            parts.append(greatest.view(torch.int64))
        joined = torch.cat(parts)
        try:
            with by_kernel():  # it is what the device is waited for
                table = joined.cpu().numpy()
        except RuntimeError:
            fault = fault_of(self._device)
            if not fault:
                raise
            return Screened(lost=fault, spent=True)
        members = table.shape[1]
        largest = table[1 + 4 * len(accepted) :].view(np.float64)
        is_finite = np.ones(members, np.bool_) & np.isfinite(largest).all(0)
        suspects = dict(run.failed)
        called = np.ones(members, np.bool_)
        called[list(run.dropped)] = False
        judged, ratio = np.ones(members, np.bool_), np.zeros(members)
        compared = dict[str, bool]()
        for n, name in enumerate(accepted):
            _, missed, unsure, worst = table[1 + 4 * n : 5 + 4 * n]
            # Each result counts: one may be open though others are decided.
            size = accepted[name].reference[0].numel()
            if size:
                judged &= unsure < size
                # That NaN stays NaN tells nothing of numbers.
                compared[name] = bool((called & is_finite & (unsure < size)).any())
            ratio = np.maximum(ratio, worst.view(np.float64))
            for number in missed.nonzero()[0].tolist():
                where = "" if is_finite[number] else " on data that are not finite"
                suspects.setdefault(number, f"{name} is wrong{where}")
        for number in table[0].nonzero()[0].tolist():
            suspects.setdefault(number, "memory changed that is not its own")
        passed = called.copy()
        passed[list(suspects)] = False
        total = sum(a.reference[0].numel() for a in accepted.values())
        decided = passed & judged & (total > 0)
        sure, right = int(decided.sum()), int(passed.sum())
        finite = int((decided & is_finite).sum())
        batch = Batch(right, sure, finite, friendly=is_friendly(case))
        open_ones = right - sure if total else 0
        unsure_of = self._classes & _OF_VALUES if open_ones else ()
        return Screened(
            passed=right,
            suspects=tuple(
                Suspect(n, suspects[n]) for n in sorted(suspects) if called[n]
            ),
            dropped=len(run.dropped),
            conforms={n: k for n in self._classes if (k := _TELLS[n](batch))},
            undecided=dict.fromkeys(unsure_of, open_ones),
            ratio=float(ratio[passed].max()) if right else 0.0,
            compared=compared,
        )


def declined(kernel: BoundKernel, case: Case) -> str:
    """Return why no batch of a structure is prefiltered, "" if one can be."""
    claims = kernel.declaration
    if not batchable(kernel.operator):
        return "its oracle takes one case at a time"
    if claims.nonfinite == "raise":
        return "it has to raise on some items"
    if case.large or case.pinned:
        return "it is a case of its own"
    for spec in case.tensors.values():
        indices = spec.fill if spec.below else None
        if indices and is_hostile(indices.family):
            return "its indices are out of bounds"
    return ""


def member_case(kernel: BoundKernel, burst: Burst, number: int) -> Case:
    """Return one member as a case of its own, in the structure that all have.

    Where it lies beside a page is its own: no page is near a batch, so that members
    judged one after the other are to touch it on either side.
    """
    common = settled(burst.case, kernel.declaration)
    made = item(replace(burst, case=common), number)
    return replace(made, edge=drawn_edge(made.seed)) if number else made


def magnitudes(values: Mapping[str, Tensor]) -> Tensor | None:
    """Return the greatest magnitude of each floating argument in each member.

    Returns:
        float64 [arguments, members], NaN where a member holds one; None where no
        argument holds floating numbers.
    """
    found = []
    for x in values.values():
        if x.is_floating_point() and x.numel():
            wide = x.to(torch.float32) if x.itemsize == 1 else x  # of float8: no abs
            rows = wide.reshape(len(wide), -1)
            found.append(rows.abs().amax(1).to(torch.float64))
    return torch.stack(found) if found else None
