"""Which kernels there are, and up to which size each is right."""

from typing import Final, NamedTuple


class Late(NamedTuple):
    """A kernel that is wrong beyond a size.

    Attributes:
        family: the template in `kernels.py`.
        axis: what is limited: a keyword of the template.
        threshold: the greatest size at which the kernel is right.
    """

    family: str
    axis: str
    threshold: int

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return f"{self.family}_{self.axis}_{self.threshold}"


THRESHOLDS: Final = {
    ("product", "inner"): (256, 1_024, 4_096),
    ("product", "rows"): (64, 512),
    ("product", "columns"): (128, 2_048),
    ("softmax", "columns"): (1_024, 8_192),
    ("softmax", "rows"): (65_535,),
    ("rms_norm", "columns"): (512, 16_384),
    ("rms_norm", "rows"): (65_535,),
    ("layer_norm", "columns"): (2_048, 65_536),
    ("row_sum", "columns"): (4_096, 262_144, 1_048_576),
    ("row_sum", "rows"): (1_000, 65_535),
    ("relu", "elements"): (4_096, 65_536, 1_048_576),
    ("add", "elements"): (131_072,),
    ("scan", "columns"): (256, 2_048, 32_768),
    ("attention", "keys"): (128, 1_024),
    ("attention", "queries"): (256,),
    ("attention", "head"): (64,),
}
LATE: Final = tuple(
    Late(family, axis, threshold)
    for (family, axis), thresholds in THRESHOLDS.items()
    for threshold in thresholds
)
FAMILIES: Final = tuple(dict.fromkeys(late.family for late in LATE))


def correct(family: str) -> str:
    """Return the name of a template's kernel that has no limit."""
    return f"{family}_correct"
