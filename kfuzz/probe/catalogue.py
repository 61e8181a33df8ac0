"""All probes, in the order in which they are told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kfuzz.core.probed import Outcome, Reading
from kfuzz.probe import functions, operands, order, repeats, store, width
from kfuzz.probe.subject import Inapplicable, Subject, Unobserved

Probe = Callable[[Subject], Iterator[Reading]]

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
            yield from (r for r in probe(subject) if r.probe in wanted)
        except Inapplicable as why:
            yield subject.inapplicable(name, str(why))
        except Unobserved as why:
            yield subject.reading(name, "", "", Outcome.UNDECIDED, reason=str(why))
