"""The reduced dimension in another order: what a schedule may not depend on.

kfuzz's definition of C-ORD-01: in whatever order a kernel meets what it reduces, the
results lie within the bound of the declared accumulation. Two results of one sum then
differ by no more than twice the bound and one rounding of the store each.
"""

from typing import Final

import torch

from kfuzz.contracts.changed import ORDERS, Changed, Order
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence, Permuted
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.reading import miss_of
from kfuzz.core.recipe import Case
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.relational import apart, is_plain, told
from kfuzz.numerics.elements import as_integers


def reduced_name(operator: Operator, case: Case) -> str | None:
    """Return the name of the dimension that a case reduces; None if it has none."""
    if operator.dim is None and isinstance(operator.reduced, str):
        return operator.reduced
    axis, lead = operator.reduced_axis(case), case.lead
    return None if axis is None or not lead.axes else lead.axes[axis]


def orders(operator: Operator, case: Case) -> list[Order]:
    """Return the orders in which a case can be run, none where nothing is reduced."""
    axis = reduced_name(operator, case)
    names = tuple(n for n, s in case.tensors.items() if axis in s.axes)
    return [Order(axis, names, order) for order in ORDERS] if axis and names else []


def permuted(given: Derived, order: Order) -> Derived | None:
    """Return the case in another order; None where that changes no element."""
    values, changed = dict(given.values), False
    for name in order.arguments:
        x, axis = values[name], given.case.tensors[name].axes.index(order.axis)
        wanted = order.places(x.shape[axis])
        places = torch.tensor(wanted, device=x.device, dtype=torch.int64)
        raw = as_integers(x.contiguous())
        made = raw.index_select(axis, places)
        changed = changed or not torch.equal(made, raw)
        values[name] = made.contiguous().view(x.dtype)
    return Derived(given.case, values) if changed else None


def with_orders(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of a conforming case with what other orders gave."""
    given = calls.plain
    found: list[Changed] = []
    left = False
    for order in orders(evidence.operator, given.case):
        made = permuted(given, order)
        there = None if made is None else apart(calls, made)
        if made is None or there is None:
            continue
        if miss_of(there) is None:
            found.append(Changed(order))
        elif is_plain(calls, made):
            found.append(Changed(order, miss_of(there)))
            break
        else:
            left = True
    return evidence.knowing(Permuted(told(found, left=left)))


STEP: Final = Step((Probe.PERMUTED,), with_orders, place=(7, 2))
