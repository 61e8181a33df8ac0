"""What becomes of operands and of products: TF32, subnormal numbers, contraction."""

import math
from collections.abc import Iterator
from typing import Final

from kfuzz.core.arithmetic_facts import Claim, Outcome, Reading
from kfuzz.core.recipe import Case
from kfuzz.probe.formats import least_normal, least_subnormal
from kfuzz.probe.rows import Row
from kfuzz.probe.subject import ONES, Inapplicable, Subject, Unobserved, number

OPERANDS: Final = "operands"
SUBNORMALS: Final = "subnormals"
CONTRACTION: Final = "contraction"

_X: Final = 1 + 2.0**-11 + 2.0**-12 + 2.0**-23
_SQUARED: Final = 1 + 2.0**-12 + 2.0**-23
# What the square is in float32, rounded once.
_SQUARE: Final = 1 + 2.0**-11 + 2.0**-22 + 2.0**-23
# One unit in the last place is lost by truncation too.
_CUT: Final = 1.5 * 2.0**-23
_UNROUNDED: Final = "products are added unrounded, as by fused multiply-add"


def operands(subject: Subject) -> Reading:
    """Return the format in which float32 operands are multiplied or added.

    1 + 2^-11 + 2^-12 + 2^-23 is 1 + 2^-10 rounded to TF32 or float16, 1 truncated to
    TF32 and in bfloat16; 1 + 2^-9 tells these apart, and 1e5 float16.
    """
    if subject.dtype != "float32":
        raise Inapplicable("it concerns float32 data")
    n = subject.size()
    alone = [Row(0.0, {0: x}) for x in (_X, 1 + 2.0**-9, 100000.0)]
    fine, coarse, large = subject.values(n, alone)
    raw = [f"1 + 2^-11 + 2^-12 + 2^-23 gives 1 + {number(fine - 1)}"]
    raw += [f"1 + 2^-9 gives 1 + {number(coarse - 1)}", f"100000 gives {number(large)}"]
    square, case = None, subject.case(n, alone[:1])
    if subject.adder.products:
        factors = Row(0.0, {0: _SQUARED})
        [square] = subject.values(n, [factors], [factors])
        raw.append(f"(1 + 2^-12 + 2^-23)^2 gives 1 + {number(square - 1)}")
    if math.isinf(large):
        found, bits = "float16", "float16"
    elif fine == _X and square is not None and abs(square - _SQUARE) > _CUT:
        found, bits = "in parts, as three products in TF32", "tf32x3"
        factors = Row(0.0, {0: _SQUARED})
        case = subject.case(n, [factors], [factors])
    elif fine == _X:
        found, bits = "float32", "float32"
    elif coarse == 1:
        found, bits = "bfloat16", "bfloat16"
    elif fine == 1 + 2.0**-10:
        found, bits = "TF32, rounded", "tf32"
    elif fine == 1:
        found, bits = "TF32, truncated", "tf32"
    else:
        raise Unobserved("no format gives this", observed=tuple(raw), terms=n)
    model = subject.accumulator.model
    ranked = {"bfloat16": 0, "float16": 0, "tf32": 1, "tf32x3": 2, "float32": 3}
    declared = "tf32" if model == "any_tensor_core" else model
    wanted = ranked.get(declared, 3)
    # The two narrow formats have one rank, but not one precision and range.
    if ranked[bits] == wanted and (wanted or bits == declared):
        outcome = Outcome.AS_DECLARED
    else:
        outcome = Outcome.BETTER if ranked[bits] > wanted else Outcome.DIFFERS
    declarable = outcome is Outcome.DIFFERS and bits in ("tf32", "tf32x3")
    text = {1: "TF32", 2: "three products in TF32", 0: model}.get(wanted, "float32")
    return subject.reading(
        OPERANDS, found, text, outcome, terms=n, observed=tuple(raw),
        claims={"accumulator": bits} if declarable else {},
        witnesses=(case,),
    )  # fmt: skip


def subnormals(subject: Subject) -> Reading:
    """Return whether subnormal numbers keep their value, at several lengths."""
    asked = list(_asked(subject))
    flushed, raw, cases = [], [], []
    for what, case, got, wanted in asked:
        if got != wanted:
            flushed.append(what)
            cases.append(case)
        raw.append(f"{what}: {number(got)}, {number(wanted)} if kept")
    other = [w for w, _, got, wanted in asked if got not in (0.0, wanted)]
    mode = subject.claims.subnormals
    if other:
        why = "what is there is neither kept nor 0"
        raise Unobserved(why, declared=mode, observed=tuple(raw))
    every = len(flushed) == len(asked)
    found = "kept" if not flushed else "flushed"
    if flushed and not every:
        found = f"flushed: {', '.join(dict.fromkeys(flushed))}"
    outcome = Outcome.AS_DECLARED
    witnesses: tuple[Case, ...] = ()
    if mode == "preserve" and flushed:
        outcome, witnesses = Outcome.DIFFERS, tuple(cases)
    elif mode == "flush" and not every:
        outcome = Outcome.DIFFERS
        witnesses = tuple(c for _, c, got, wanted in asked if got == wanted)
    claims: dict[str, Claim] = {}
    if outcome is Outcome.DIFFERS:
        claims["subnormals"] = "any" if not every else "flush"
    elif mode == "any" and not flushed:
        outcome = Outcome.BETTER
        claims["subnormals"] = "preserve"
    return subject.reading(
        SUBNORMALS, found, mode, outcome, observed=tuple(raw),
        witnesses=witnesses, claims=claims,
    )  # fmt: skip


def _asked(subject: Subject) -> Iterator[tuple[str, Case, float, float]]:
    """Yield what is asked: in words, the case, what came, what is right."""
    if not isinstance(subject.elements, str):
        yield from _of_elements(subject)
        return
    adder = subject.adder
    n = subject.size()
    if adder.divisor(n) > 1 and subject.kernel.operator.name != "mean":
        raise Inapplicable("its weights of 1 / n leave no subnormal number exact")
    lengths = {n, *[m for m in (128, 256) if m <= subject.most_terms]}
    low, least = least_normal(adder.output), least_subnormal(adder.output)
    data_low = least_normal(subject.dtype)
    data_least = least_subnormal(subject.dtype)
    for terms in sorted(m for m in lengths if subject.admits(m)):
        divisor = float(adder.divisor(terms))

        def one(
            what: str,
            row: Row,
            right: Row,
            wanted: float,
            terms: int = terms,
            divisor: float = divisor,
        ) -> tuple[str, Case, float, float]:
            case = subject.case(terms, [row], [right])
            [value] = subject.values(terms, [row], [right])
            return what, case, value / divisor, wanted

        if divisor > 1:  # the mean of equal terms is each of them
            yield one("results", Row(data_least), ONES[0], data_least)
            continue
        # TF32 holds the first; the least would be rounded away, which is no flushing.
        given = data_low / 2 if subject.dtype == "float32" else data_least
        row = Row(0.0, {0: given})
        if adder.products:
            # Times a power of two, so that the result is no matter of its own.
            up = 4.0 if adder.output != subject.dtype else 2.0**10
            if subject.dtype in ("float32", "bfloat16", "float64"):
                up = 2.0**40
            yield one("operands", row, Row(1.0, {0: up}), given * up)
            if adder.output == subject.dtype:
                small = Row(0.0, {0: low * 2.0**5})
                yield one("products", small, Row(1.0, {0: 2.0**-6}), low / 2)
        else:
            yield one("operands", row, ONES[0], given)
        if adder.output == subject.dtype and least < low:
            cut = Row(0.0, {0: 1.5 * data_low, 1: -data_low})
            yield one("sums", cut, ONES[0], data_low / 2)


def _of_elements(subject: Subject) -> Iterator[tuple[str, Case, float, float]]:
    elements = subject.elements
    assert not isinstance(elements, str)
    low, least = least_normal(subject.dtype), least_subnormal(subject.dtype)
    asked: list[tuple[str, tuple[float, ...], float]]
    match elements.name:
        case "copy" | "relu" | "leaky_relu":
            asked = [("operands", (least,), least), ("operands", (low / 2,), low / 2)]
        case "mul":
            asked = [
                ("operands", (least, 4.0), 4 * least),
                ("products", (low, 0.5), low / 2),
            ]
        case "add":
            asked = [
                ("operands", (least, 0.0), least),
                ("sums", (1.5 * low, -low), low / 2),
            ]
        case _:
            what = f"no subnormal result of {elements.name} is known exactly"
            raise Inapplicable(what)
    for what, values, wanted in asked:
        case, [got, *_] = subject.elementwise(*[[v] * 16 for v in values])
        yield what, case, got, wanted


def contraction(subject: Subject) -> Reading:
    """Return whether products are rounded before they are added.

    Of a = 1 + 2^-12 the square less 1 + 2^-11 is 2^-24, or 0 if it was rounded.
    """
    if subject.dtype != "float32":
        raise Inapplicable("it concerns float32 data")
    if not subject.adder.products:
        raise Inapplicable("it multiplies nothing")
    n = subject.size()
    a, b = 1 + 2.0**-12, -(1 + 2.0**-11)
    [alone] = subject.values(n, [Row(0.0, {0: a})])
    if alone != a:
        raise Unobserved("operands or sums are too narrow to tell")
    got = []
    for first, second in ((0, 1), (1, 0)):
        left, right = Row(0.0, {first: a, second: b}), Row(1.0, {first: a, second: 1.0})
        got += subject.values(n, [left], [right])
    told = {(0.0,): "products are rounded", (2.0**-24,): _UNROUNDED}
    shown = " or ".join(dict.fromkeys(map(number, got)))
    raw = (f"a a - (1 + 2^-11) = {shown}, a = 1 + 2^-12",)
    # In one of the two orders the product comes first and is rounded to begin with.
    seen = (max(got),)
    if seen not in told or min(got) not in (0.0, seen[0]):
        raise Unobserved("neither way of adding gives this", observed=raw, terms=n)
    return subject.undeclared(CONTRACTION, told[seen], observed=raw, terms=n)
