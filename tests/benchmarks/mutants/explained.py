"""Why mutants that kfuzz leaves are no faults, or cannot be seen where they ran."""

from collections.abc import Mapping
from typing import Final

_UNUSED: Final = "what those lanes hold is masked again, or never stored"
_WIDER: Final = "what it is computed with is float32, and widens it"
_ZERO: Final = "Triton has 0 in lanes without `other`, interpreted and in PTX"
_TWICE: Final = "an element that is taken or written twice gives the same"
_NOTHING: Final = "what is taken from is minus infinity, and stays it"
# Globs of ids, each with what is known of the mutants; the first that fits is taken.
EXPLAINED: Final[Mapping[str, str]] = {
    "triton_layer_norm/fill-missing/2": _UNUSED,
    "*/fill-missing/*": _ZERO,
    "triton_*_norm/wrong-fill/[45]": _UNUSED,
    "triton_*softmax/wrong-fill/[23]": _UNUSED,
    "triton_cumsum/wrong-fill/1": "only lanes past the end of the row come after",
    "triton_attention/wrong-fill/2": "what it is multiplied with there is 0",
    "*/cast-missing/*": _WIDER,
    "triton_amax/selection-dropped/1": "a NaN is put in last, whatever came of it",
    "triton_amax/identity-finite/2": "it stands for a NaN, which is put in last",
    "triton_argmax/tile-counted-twice/1": _TWICE,
    "triton_l2_normalize/tile-counted-twice/2": _TWICE,
    "triton_layer_norm/tile-counted-twice/3": _TWICE,
    "triton_log_softmax/constant-off-by-one/2": _NOTHING,
    "triton_attention/constant-off-by-one/1": _NOTHING,
    "triton_group_norm/operands-swapped/2": "it is squared",
    "triton_cross_entropy/guard-inclusive/7": "such a target has been refused before",
    "triton_cross_entropy/result-shared/1": "the buffer is written whole before it is "
    "summed, and is not what is returned",
    "triton_cross_entropy/identity-finite/3": "takes a row below -1e4 that does not "
    "fill its block: found after 459 and 535 cases of a longer search",
    "triton_cross_entropy/accumulator-overwritten/1": "the maximum only keeps exp from "
    "overflowing: found after 52 to 193 cases in the interpreter",
    "triton_cross_entropy/stride-ignored/2": "likewise: after 6 to 14 cases",
    "triton_softmax/tile-overstepped/1": "leaves out one element in 4,097 of a "
    "maximum: found after 1,482, 1,747 and 2,546 cases in the interpreter, by values "
    "that are large at a seam of tiles, a family added for it",
    "triton_cross_entropy/tile-overstepped/2": "leaves out one element in 4,097 of a "
    "sum: found after 1,302 cases in the interpreter",
    "triton_add_rms_norm/saturated/2": "takes results above 60,000: found after 367 "
    "cases in the interpreter",
    "triton_logsumexp/one-tile-only/1": "takes more than 1,024 columns: found after 9 "
    "and 429 cases of longer searches",
    "*/empty-unhandled/*": "Triton launches no empty grid, and a loop over no column "
    "ends at once",
    # The even ones leave every other tile unwritten.
    "*/program-order/[13579]": "programs do not depend on each other",
    "triton_*/subnormals-flushed/*": "subnormals may be flushed, as declared",
    "triton_linear_relu/tie-policy/1": "0 for 0",
    "triton_clamp/tie-policy/1": "a bound for its equal; zeros may have either sign",
    "triton_add_rms_norm/division-by-reciprocal/1": "one rounding more, for which "
    "the bound has room",
    "triton_softmax/division-by-reciprocal/1": "Triton's own division of float32",
    "*/exp-by-exp2/*": "Triton's own exp",
    "triton_tanh/constant-one-ulp/2": "an error of 5e-8 at most, within what "
    "2 sigmoid(2 x) - 1 may have",
    "triton_clamp/guard-inclusive/1": "found in the interpreter, under K-MEM-01",
    "triton_attention/stride-ignored/14": "likewise",
    "triton_elu/constant-one-ulp/1": "an error of one ulp of 1, within what exp(x) - 1 "
    "may have near 0",
}
# Charged by a longer search: no equivalents, though a comparison may not tell.
CHARGED: Final = frozenset(
    {
        "triton_add_rms_norm/saturated/2",
        "triton_cross_entropy/identity-finite/3",
        "triton_cross_entropy/tile-overstepped/2",
        "triton_logsumexp/one-tile-only/1",
        "triton_softmax/tile-overstepped/1",
    }
)
