"""The families of values, of integers, truth values and indices.

`kfuzz.execution.values.fills` makes them.

Some serve the search, some (exact) make every lost bit show: each family
exists because it exposes a class of faults that random normal data hides.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Family:
    """A way to generate the values of a tensor.

    Attributes:
        name: as recipes spell it.
        group: "plain", "exact" (results are exactly representable, so any
            error shows), "extreme" (offsets and magnitudes), "order" (the
            place of the large values matters), "special" (holds NaN, Inf or
            signed zeros) or "structured" (matrices); of integer data "integer",
            of truth values "bool"; of indices "index" (all below their bound) or
            "hostile" (some are not).
        purpose: the faults it exposes.
    """

    name: str
    group: str
    purpose: str


FAMILIES: Final = {
    f.name: f
    for f in (
        Family("randn", "plain", "baseline"),
        Family("uniform01", "plain", "errors of one sign accumulate"),
        Family("ones", "plain", "biased rounding, uniform softmax"),
        Family("zeros", "plain", "division by zero, signed zeros"),
        Family("all_equal", "plain", "biased rounding, zero variance"),
        Family("negative", "plain", "zero as identity or as fill of a tail"),
        Family("exact_int", "exact", "any lost bit, in every order"),
        Family("exact_walk", "exact", "any lost bit behind large partial sums"),
        Family("powers", "exact", "powers of two: products and scaling are exact"),
        Family("balanced", "exact", "plus and minus c: mean 0, variance c*c exactly"),
        Family("ties", "exact", "repeated values: ties of maxima"),
        Family("absorb", "order", "a large head stops a narrow accumulator"),
        Family("cancel", "order", "large mirrored pairs: reordering, partials"),
        Family("ramp", "order", "rising scores: online rescaling"),
        Family("tail_big", "order", "the last element dominates: tail masks"),
        Family("onehot_tail", "order", "only the last element counts"),
        Family("onehot_edge", "order", "only one element at a tile edge counts"),
        Family("offset", "extreme", "mean far above spread: one-pass variance"),
        Family("offset_ulp", "extreme", "mean plus a few ulps: cancellation"),
        Family("expspread", "extreme", "45 binades: coerced operands, order"),
        Family("big_logits", "extreme", "plus and minus 100: no max subtraction"),
        Family("neg_logits", "extreme", "all below -100: zero as max identity"),
        Family("nearmax", "extreme", "intermediate overflow"),
        Family("subnormal", "extreme", "flushing of subnormal numbers"),
        Family("minnormal", "extreme", "values around the least normal number"),
        Family("halfway", "extreme", "midpoints of the 16-bit formats: rounding"),
        Family("nan1", "special", "one NaN: swallowing, contamination"),
        Family("inf1", "special", "one infinity"),
        Family("infmix", "special", "infinities of both signs"),
        Family("ninf_mask", "special", "masked logits"),
        Family("ninf_all", "special", "fully masked rows"),
        Family("signed_zeros", "special", "lost signs of zero"),
        Family("permutation", "structured", "transposed or swapped operands"),
        Family("hadamard", "structured", "plus and minus 1, orthogonal rows"),
        Family("transpose_of", "structured", "operand correlated with another"),
        Family("edge_big", "order", "an element at a tile edge dominates: seams"),
    )
}

# Of integer data, such as the codes of quantized numbers.
INTEGER_FAMILIES: Final = {
    f.name: f
    for f in (
        Family("int_uniform", "integer", "baseline: the whole range of the dtype"),
        Family("int_small", "integer", "-8 to 7: what is exact in every format"),
        Family("int_zeros", "integer", "all 0"),
        Family("int_ends", "integer", "the least and the greatest: clamping, signs"),
    )
}

# Of truth values.
BOOL_FAMILIES: Final = {
    f.name: f
    for f in (
        Family("bool_random", "bool", "baseline: either, half and half"),
        Family("bool_mostly_true", "bool", "1 in 16 false"),
        Family("bool_mostly_false", "bool", "1 in 16 true"),
        Family("bool_all_true", "bool", "nothing is left out"),
        Family("bool_all_false", "bool", "everything is left out"),
        Family("bool_one_true", "bool", "one of each row: all but one left out"),
        Family("bool_alternating", "bool", "neighbours differ: packed, shared loads"),
        Family("bool_tail", "bool", "the last of each row alone: tail masks"),
    )
}

# Of indices below a bound n.
INDEX_FAMILIES: Final = {
    f.name: f
    for f in (
        Family("index_uniform", "index", "baseline"),
        Family("index_first", "index", "all 0: the first row or class"),
        Family("index_last", "index", "all n-1: tail masks of what is indexed"),
        Family("index_sorted", "index", "rising: coalesced and blocked reads"),
        Family("index_reversed", "index", "falling: assumed order"),
        Family("index_equal", "index", "one value: duplicates, atomics"),
        Family("index_permuted", "index", "each value once where there is room"),
        Family("index_edges", "index", "0, n-1 and the edges of tiles of n"),
        Family("index_negative", "hostile", "-1: wraps, or reads before the start"),
        Family("index_bound", "hostile", "n: one past the end, padded columns"),
        Family("index_beyond", "hostile", "n+1: two past the end"),
        Family("index_least", "hostile", "the least integer: overflowing offsets"),
        Family("index_greatest", "hostile", "the greatest one: overflowing offsets"),
    )
}

STRETCHED: Final = ("randn", "uniform01", "negative", "powers")
"""Value families in which an element depends on its number alone, so that any part of
a tensor can be made without the rest."""
