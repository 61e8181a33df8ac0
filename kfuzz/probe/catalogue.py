"""All probes, in the order in which they are told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kfuzz.core.arithmetic_facts import Outcome, Reading
from kfuzz.probe import functions, operands, order, repeats, store, width
from kfuzz.probe.subject import Inapplicable, Subject, Unobserved

Probe = Callable[[Subject], Reading | Iterator[Reading]]

PROBES: Final[Mapping[str, Probe]] = {
    order.ORDER: order.order,
    width.ACCUMULATOR: width.accumulator,
    width.ALIGNMENT: width.alignment,
    width.FUSED: width.fused,
    operands.OPERANDS: operands.operands,
    operands.CONTRACTION: operands.contraction,
    operands.SUBNORMALS: operands.subnormals,
    store.STORE: store.store,
    store.STOCHASTIC: store.stochastic,
    functions.INTRINSICS: functions.intrinsics,
    functions.SPECIAL: functions.special,
    repeats.DETERMINISM: repeats.determinism,
    repeats.BATCH: repeats.batch,
}
# What "split" says follows from the orders that "order" finds.
NAMES: Final = (*PROBES, order.SPLIT)


def readings(subject: Subject, wanted: Sequence[str] = NAMES) -> Iterator[Reading]:
    """Yield what the probes say of a kernel in one format.

    Args:
        subject: the kernel.
        wanted: names of probes.
    """
    for name, probe in PROBES.items():
        own = {name, order.SPLIT} if name == order.ORDER else {name}
        if not own & set(wanted):
            continue
        try:
            made = probe(subject)
            several = [made] if isinstance(made, Reading) else made
            yield from (r for r in several if r.probe in wanted)
        except Unobserved as why:
            inapplicable = isinstance(why, Inapplicable)
            outcome = Outcome.NOT_APPLICABLE if inapplicable else Outcome.UNDECIDED
            blank = subject.reading(name, "", "", outcome, reason=str(why))
            yield replace(blank, **why.known)  # type: ignore[arg-type]
