"""Whether the same call gives the same bits, and a row the same in every batch."""

from collections.abc import Sequence
from typing import Final

from kfuzz.core.arithmetic_facts import Claim, Outcome, Reading
from kfuzz.probe.rows import Row, spread
from kfuzz.probe.subject import ONES, SIZES, Inapplicable, Subject, Unobserved, number

DETERMINISM: Final = "determinism"
BATCH: Final = "batch"

REPEATS: Final = 30
# Sub-batches: the first so many rows.
_BATCHES: Final = (1, 2, 3, 4, 8, 15, 16)
_ROWS: Final = 17
# No order of adding values spread over so many octaves rounds as another one does.
_OCTAVES: Final = 12


def _rows(subject: Subject) -> tuple[int, list[Row], Sequence[Row]]:
    n = subject.size([n for n in SIZES[::-1] if n <= subject.most_terms])
    octaves = _OCTAVES if subject.dtype != "float16" else 4
    made = [
        Row(raw=spread(n, subject.dtype, seed=seed, octaves=octaves))
        for seed in range(_ROWS + 1)
    ]
    right = ONES if not subject.adder.products else (made[-1],)
    return n, made[:-1], right


def determinism(subject: Subject) -> Reading:
    """Return in how many of equal calls the bits are others, on a GPU under load."""
    n, rows, right = _rows(subject)
    case = subject.case(n, rows, right)
    made = subject.observed(case, REPEATS)
    mode = subject.claims.determinism
    raw: tuple[str, ...] = ()
    if not made.unlike:
        outcome = Outcome.BETTER if mode == "none" else Outcome.AS_DECLARED
        found = f"the same bits in {made.calls} calls"
        claims: dict[str, Claim] = {}
    else:
        outcome = Outcome.AS_DECLARED if mode == "none" else Outcome.DIFFERS
        found = f"other bits in {made.unlike} of {made.calls} calls"
        one = subject.adder.read(made, len(rows), apart=False)
        two = subject.adder.read(made, len(rows), apart=False, other=True)
        places = [i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
        if places:
            at = places[0]
            shown = [number(line[at][0]) for line in (one, two)]
            raw = (f"row {at}: {shown[0]}, then {shown[1]}",)
        claims = {} if mode == "none" else {"determinism": "none"}
    return subject.reading(
        DETERMINISM, found, mode, outcome, terms=n, observed=raw, claims=claims,
        witnesses=(case,),
    )  # fmt: skip


def batch(subject: Subject) -> Reading:
    """Return in which batches a row has other bits than in the whole."""
    if not subject.adder.exact:
        raise Inapplicable("its rows form no batch")
    n, rows, right = _rows(subject)
    whole = _results(subject, n, rows, right)
    if _results(subject, n, rows, right) != whole:
        raise Unobserved("equal calls give other bits as it is")
    unlike, tried = [], []
    for size in _BATCHES:
        try:
            some = _results(subject, n, rows[:size], right)
        except Unobserved:
            continue  # no batch of that size is in its domain
        tried.append(size)
        if [line[0] for line in some] != [line[0] for line in whole[:size]]:
            unlike.append(f"the first {size}")
    turned = _results(subject, n, rows[::-1], right)[::-1]
    if [line[0] for line in turned] != [line[0] for line in whole]:
        unlike.append("all in reverse")
    declared = subject.claims.batch_invariant
    text = "the same bits" if declared else ""
    if unlike:
        listed = f"other bits in batches of {', '.join(unlike)} of {len(rows)} rows"
        if not declared:
            return subject.undeclared(BATCH, listed)
        whole_case = subject.case(n, rows, right)
        return subject.reading(
            BATCH, listed, text, Outcome.DIFFERS, terms=n, witnesses=(whole_case,),
            claims={"batch_invariant": False},
        )  # fmt: skip
    found = f"the same bits in {len(tried) + 1} batches of {len(rows)} rows"
    outcome = Outcome.AS_DECLARED if declared else Outcome.BETTER
    return subject.reading(
        BATCH, found, text, outcome, terms=n,
        claims={} if declared else {"batch_invariant": True},
    )  # fmt: skip


def _results(
    subject: Subject, n: int, rows: Sequence[Row], right: Sequence[Row]
) -> list[tuple[float, ...]]:
    """Return the results of rows in one call."""
    made = subject.observed(subject.case(n, rows, right))
    return subject.adder.read(made, len(rows), apart=False)
