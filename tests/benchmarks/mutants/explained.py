"""Why mutants that kfuzz leaves are no faults, or cannot be seen where they ran."""

from collections.abc import Mapping
from typing import Final

_UNUSED: Final = "what those lanes hold is masked again, or never stored"
_WIDER: Final = "what it is computed with is float32, and widens it"
# Globs of ids, each with what is known of the mutants; the first that fits is taken.
EXPLAINED: Final[Mapping[str, str]] = {
    "triton_attention/fill-missing/2": "in the interpreter lanes without `other` "
    "hold 0, as before",
    "triton_layer_norm/fill-missing/2": _UNUSED,
    "triton_*_norm/wrong-fill/[45]": _UNUSED,
    "triton_cumsum/wrong-fill/1": "only lanes past the end of the row come after",
    "triton_add_rms_norm/cast-missing/5": _WIDER,
    "triton_cross_entropy/cast-missing/1": _WIDER,
    "triton_clamp/cast-missing/1": _WIDER,
    "triton_amax/selection-dropped/1": "a NaN is put in last, whatever came of it",
    "triton_cross_entropy/guard-inclusive/7": "such a target has been refused before",
    "triton_cross_entropy/result-shared/1": "the buffer is written whole before it is "
    "summed, and is not what is returned",
    "triton_cross_entropy/identity-finite/3": "takes a row below -1e4 that does not "
    "fill its block: found after 459 and 535 cases of a longer search",
    "triton_logsumexp/one-tile-only/1": "takes more than 1,024 columns: found after 9 "
    "and 429 cases of longer searches",
    "*/empty-unhandled/*": "Triton launches no empty grid, and a loop over no column "
    "ends at once",
    "triton_group_norm/program-order/1": "programs do not depend on each other",
    "triton_linear_relu/tie-policy/1": "0 for 0",
    "triton_add_rms_norm/division-by-reciprocal/1": "one rounding more, for which "
    "the bound has room",
    "triton_elu/constant-one-ulp/1": "an error of one ulp of 1, within what exp(x) - 1 "
    "may have near 0",
}
# Charged by a longer search: no equivalents, though a comparison may not tell.
CHARGED: Final = frozenset(
    {"triton_cross_entropy/identity-finite/3", "triton_logsumexp/one-tile-only/1"}
)
