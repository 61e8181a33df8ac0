"""What the words and signs of a contract mean, so that it stands alone when printed.

Numbers are written out here, for the pages are printed without torch;
tests/contracts/test_glossary.py holds them against the code.
"""

import re
from collections.abc import Iterator
from typing import Final

from kfuzz.contracts.language import SECOND_CALL_SHARE, Contract, Probe

# Sign -> (where a text uses it, what it means). In order of first need.
_SIGNS: Final[dict[str, tuple[str, str]]] = {
    "RNE": (
        r"\bRNE\b",
        "rounding to nearest, ties to even, in the output's format, overflow and "
        "subnormal results included. Both ends of an interval are rounded so, and a "
        'result may be either end or lie between them; under store="rz" or '
        '"stochastic" the lower end is rounded down and the upper one up',
    ),
    "u": (
        r"(?<![A-Za-z_])\d*\.?\d*u\b",
        "unit roundoff 2^-p, p significand bits: 53 for float64, 24 float32, 11 "
        "float16 and TF32, 8 bfloat16, 4 float8_e4m3fn, 3 float8_e5m2. In gamma and R "
        "that of the declared accumulator; elsewhere that of the declared "
        "intermediates, float32 unless they are the output's",
    ),
    "u_o": (r"\bu_o\b", "the unit roundoff of the output's format"),
    "gamma": (
        r"\bgamma\(",
        "gamma(n, u) = n u / (1 - n u); where n u >= 1/2 it is vacuous and the element "
        "undecided",
    ),
    "lambda": (
        r"\blambda\b",
        "what one result may lose to underflow: the least normal number of the "
        'accumulator\'s format, 2^-126 for float32; under subnormals="preserve" its '
        "least subnormal, 2^-149",
    ),
    "E": (
        r"(?<![A-Za-z_])E\b",
        "half the width of the interval before the store; in float64 the reference's "
        "own error, gamma of as many terms with u = 2^-53, is added",
    ),
    "accumulators": (
        r"\bgamma\((n|K|i|c)",
        "the coefficient of sum|t| over n terms, by accumulator=. float64, float32, "
        "float16, bfloat16: gamma(n-1, u). blocked(h): gamma(min(n-1, h), u). "
        "compensated: 2u + (n u)^2 + 4 n u^2, vacuous beyond n u = 0.1. splitk(p, f): "
        "(1 + c)(1 + gamma(p, u_f)) - 1, c that within a part. atomic(f): gamma(n, "
        "u_f). tf32 adds (1 + 2^-10)^k - 1 for the k operands of a term, tf32x3 "
        "(2k - 1) 2^-20. Products count 2 more roundings than sums, and 16-bit "
        "operands, or TF32 ones, in float32 never less than 2.5 (n + 4) u, which any "
        "tensor core keeps",
    ),
    "exact": (
        r"\bE = 0 where\b",
        "every order is exact where all terms are multiples of 2^q and sum|t| <= "
        "2^(p+q), p the bits of the narrowest format that a sum is kept in; where "
        "subnormals may be flushed also 2^q >= the least normal number; never with "
        "TF32 operands",
    ),
    "undecided": (
        r"\bundecided\b|\bgamma\(|\bE\b",
        "an element is undecided, neither passed nor failed, where its bound is "
        "vacuous, or where it misses and some order of its sum, or a naive square, "
        "leaves the accumulator's range: max(P, N)(1 + gamma) > its greatest number, P "
        "and N the sums of the positive and of the negative magnitudes",
    ),
}

_PROBES: Final[dict[Probe, str]] = {
    Probe.BASE: "the case in memory of its own, between guard zones of one row, 4 KiB "
    "to 64 KiB, under its poison",
    Probe.REPEAT: "the same call again",
    Probe.OTHER_POISON: "with the other poison in fresh memory: a quiet NaN with a "
    "payload, or the greatest power of two up to 2^100 that the format holds; integers "
    "far from any index",
    Probe.OTHER_REPEAT: "the same again, under the other poison",
    Probe.ELSEWHERE: "the same data in other memory",
    Probe.REVERSED: "with the programs of each launch in reverse order",
    Probe.ONE_LAST: "with one party of a race as the last program",
    Probe.OTHER_LAST: "with the other party of a race as the last program",
    Probe.SECOND: "other data written over the first, while the first results are "
    "alive: every tensor flipped along every axis, floats negated but variances and "
    "masks",
    Probe.SECOND_ALONE: "that data in other memory",
    Probe.THIRD: "the first data halved, written there next",
    Probe.MIDDLE: "the first data, the middle of each argument in reverse order",
    Probe.ELEMENT: "the first data, but for one element of each argument",
    Probe.LAST_ARGUMENT: "the first data, but for the last argument",
    Probe.CHANGED_HALVED: "the data changed in that part, halved",
    Probe.SHORTER: "the first data with one dimension shorter, called right after the "
    "first data: the one that is reduced, else the last one that can be; by one, or by "
    "the least power of two that the domain allows",
    Probe.SHORTER_AGAIN: "the same shorter call again, right after the second data",
    Probe.SHORTER_REPEAT: "the same shorter call again, right after the first data",
    Probe.AGAIN: "the first data there, after the others, under another seed of "
    "torch's",
    Probe.AGAIN_REPEAT: "the same again",
    Probe.AFTERWARDS: "the first data there, after the others, under the first seed",
    Probe.FRIENDLY: "the failing values, tiled to power-of-two shapes: (rows, reduced "
    "axis) of (4, 4), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (4, 16), "
    "(4, 64), (4, 128), (4, 256), (4, 512), (4, 1024), (4, 4096), contiguous, the "
    "reduced axis last, within the declaration and the budget, with room for the "
    "values along it, and only where the kernel passes allclose (rtol = atol = 1e-2) "
    "on normal data. The failure is gone if there is such a shape and all of them pass",
    Probe.CONTIGUOUS: "the same values in contiguous tensors",
    Probe.ORDINARY: "the case's shapes and layouts with normal, negative and uniform "
    "data; it fails if one of them does",
    Probe.RECENTRED: "each row less its mean, then halved until no magnitude exceeds 4",
    Probe.OTHER_CONFIG: "the case under the kernel's other configurations",
    Probe.BACK_TO_BACK: "on a GPU, the same call again, in the same memory",
    Probe.BESIDE_HELD: "on a GPU, the same while a kernel on another stream holds half "
    "of the multiprocessors, with all their shared memory, for 8,000,000 clock cycles",
    Probe.BESIDE_COPIES: "on a GPU, the same while 32 copies of 32 MiB run on another "
    "stream",
    Probe.SLICED: "some of its rows as a batch of their own, and its rows in another "
    "order",
    Probe.OVERLAPPED: "several calls at once, each on data and memory of its own",
    Probe.ALONE: "the data of one of these calls, called by itself",
    Probe.COLD: "with empty caches of autotuners, which then call each of up to four "
    "configurations (two in Triton's interpreter) twice, untimed, and take the case's",
    Probe.WARM: "the same again, with the caches that this left",
    Probe.REPLAYED: "the call captured in a CUDA graph, after two warm-ups, and "
    "replayed once other data stand where its arguments lie",
    Probe.REPLAYED_OWN: "then replayed once more on the case's own data",
    Probe.WITHOUT_SUBNORMALS: "with 0 for every subnormal number of the arguments",
    Probe.NORMALISED: "with normal numbers for the subnormal ones of the arguments",
    Probe.SCALED: "some arguments times a power of two",
    Probe.SCALED_REPEAT: "the scaled call again",
    Probe.UNSCALED: "the case itself, in the memory of the scaled call",
    Probe.UNSCALED_REPEAT: "the same again",
    Probe.PERMUTED: "the reduced dimension of every argument in another order",
    Probe.ONE_WANTED: "the gradient with respect to one argument, the only one that "
    "requires one",
    Probe.TWO_RESULTS: "two calls on equal arguments in one graph, and half of the "
    "gradient",
    Probe.LATER_BACKWARD: "the gradient after a second forward call, on the arguments "
    "flipped and negated",
    Probe.SECOND_BACKWARD: "the gradient for the second time, through a graph that is "
    "kept",
    Probe.RESULT_OVERWRITTEN: "the gradient after the forward result was filled with "
    "2^10, unless autograd raises",
    Probe.OPCHECK: "torch.library.opcheck, test_schema and test_faketensor, on copies "
    "of the arguments of an operator that torch.library holds, in a child process",
    Probe.BUILD: "what it launches is compiled for the GPUs that the run names, in "
    "another process, on tensors without memory",
}

_CONFIRMATIONS: Final = {
    "reproduces": "the pinned case is run in three fresh children, and again when it "
    "is minimal; each must show the same kernel, kind, output and detail. What shows "
    "in some runs only is flaky, and fails no run, but where equal bits are declared: "
    "there a recorded miss is witnessed, under C-ORD-02",
    "witnessed": "the pinned case is run in pairs of fresh children, twenty at most, "
    "until two have shown the same kernel, kind, output and detail, and again when it "
    "is minimal; seen once it is flaky",
}

_ALWAYS: Final = (
    "a case is a recipe of shapes, dtypes, strides and values, drawn from the domain "
    "of the operator and of the declaration; one in "
    f"{SECOND_CALL_SHARE} conforming cases, or what the setting `probes` says, gets "
    "further calls, chosen by the recipe's seed, and every pinned one does. One "
    "failing case gives one finding, under the first class that claims it in the "
    "order of `kfuzz.contracts.classes`, decided on the reduced case"
)


def signs(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield the signs that a contract's tolerance uses, each with its meaning."""
    text = f"{contract.tolerance.bound} {contract.tolerance.derivation}"
    for sign, (pattern, meaning) in _SIGNS.items():
        if re.search(pattern, text):
            yield sign, meaning


def probes(contract: Contract) -> Iterator[tuple[Probe, str]]:
    """Yield the probes that a contract's protocol names, each with what it runs."""
    made = contract.protocol
    for probe in dict.fromkeys((*made.probes, *made.on_miss, *made.sampled)):
        yield probe, _PROBES[probe]


def confirmation(contract: Contract) -> str:
    """Return how a violation of a contract is confirmed."""
    text = _CONFIRMATIONS[contract.protocol.confirmation]
    if not contract.protocol.by_chance:
        return text
    kinds = ", ".join(contract.protocol.by_chance)
    return f"{text}. Of kind {kinds}: {_CONFIRMATIONS['witnessed']}"


def drawing() -> str:
    """Return how cases are drawn and reported, whatever the contract."""
    return _ALWAYS
