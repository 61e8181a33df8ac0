"""What torch's own CPU kernels claim, by overload, and the findings that are true.

Seen on torch 2.13 and an x86 processor with AVX-512.
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from kfuzz.contracts.aten.making import ROWS, base_of
from kfuzz.contracts.platform.catalogue import kernels

# What torch documents of overloads, and what their kernels may therefore claim.
#
# * One that the dispatcher has as a composition of others (its kernel is
#   CompositeImplicitAutograd or CompositeExplicitAutograd) stores each of their results
#   in the data's format. `claims_of` refuses the claim of any other.
# * Every other one computes 16-bit data in float32 and rounds once: "op math", in the
#   words of `torch._prims_common.elementwise_dtypes`. What breaks that is a finding.
_COMPOSITIONS: Final = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
STORED: Final = {"intermediates": "output"}

# Overloads, what their kernels claim, and why.
CLAIMS: Final[tuple[tuple[str, dict[str, Any], str], ...]] = (
    (
        "addr binary_cross_entropy_with_logits chain_matmul linalg_multi_dot cosine_* "
        "cross diff dist hinge_embedding_loss kl_div l1_loss ldexp.Tensor "
        "margin_ranking_loss nanmean pairwise_distance poisson_nll_loss "
        "soft_margin_loss trapezoid.dx triplet_margin_loss",
        STORED,
        "compositions of other operators",
    ),
    ("avg_pool3d cdist", {"dtypes": "float32"}, "16-bit formats are rejected"),
    (
        "group_norm",
        {"shape_class": None},
        "only torch.nn.functional rejects a group of one element",
    ),
    (
        "native_group_norm",
        {"layouts": "contiguous"},
        "it is what group_norm calls once it has made its arguments contiguous",
    ),
)


@dataclass(frozen=True)
class Listed:
    """A true finding in torch.

    Attributes:
        overloads: globs, separated by spaces.
        finding: glob over class, kind, output and data type.
        reason: what comes out, and why.
    """

    overloads: str
    finding: str
    reason: str


LISTED: Final = (
    Listed(
        "median.dim",
        "* values *",
        "memory that nothing wrote is read where all strides are 0: the medians of "
        "torch.full((1,), inf).as_strided((7, 3), (0, 0)) are 1.3e-14",
    ),
    Listed(
        "fmod.* remainder.*",
        "* nan_unexpected y *",
        "NaN where the quotient overflows: fmod of forty float32 3e38 by 0.01 is NaN "
        "in the vectorised part and 0.0087 in the tail",
    ),
    Listed(
        "sinh cosh",
        "* inf_unexpected y *",
        "the vectorised part overflows with exp(x): sinh of forty float32 89 is inf, "
        "and 2.24e38 in the tail",
    ),
    Listed(
        "i0 special_i1",
        "* inf_unexpected y *",
        "exp(x) overflows before the quotient by sqrt(x): i0 of 90 is 5.1e37",
    ),
    Listed(
        "conv1d",
        "C-EXC-01 nan_unexpected y bfloat16",
        "oneDNN multiplies pairs: a NaN beside a window of odd width meets a weight of "
        "0, and is in the sum",
    ),
    Listed(
        "conv_transpose1d conv_transpose2d.input",
        "C-PRC-01 value y float16",
        "a processor without products of float16 stores columns of them, and their "
        "sums, in the data's format: seen on an AMD EPYC",
    ),
    Listed(
        "erf special_erf",
        "* value y *16",
        "1 - p exp(-x^2), whose error is absolute: erf of bfloat16 1e-8 is 0, of 1e-6 "
        "a multiple of 2^-24",
    ),
    Listed(
        "binary_cross_entropy div.Tensor_mode floor_divide huber_loss logit mse_loss "
        "pow.Tensor_Scalar rsqrt _foreach_rsqrt sigmoid_backward smooth_l1_loss "
        "special_entr special_i0e special_ndtr special_xlog1py upsample_linear1d "
        "xlogy.*",
        "* value * *16",
        "steps of an elementwise operator are rounded to the data's format, not "
        "evaluated in float32 as op math is: rsqrt of bfloat16 3.5625 is 0.52734375, "
        "and 0.53125 where 0.52981 of float32 is rounded",
    ),
    Listed(
        "_softmax.out _log_softmax.out avg_pool3d.out gelu.out im2col.out "
        "narrow_copy.out",
        "* y *",
        "the strides of the destination are ignored: with every second column of a "
        "buffer as `out`, torch.narrow_copy(x, 0, 0, 1, out=out) writes those between, "
        "and gelu.out writes nothing",
    ),
    Listed(
        "adaptive_avg_pool2d.out linear.out reflection_pad2d.out replication_pad2d.out "
        "replication_pad3d.out",
        "K-ME* *",
        "a destination with gaps is resized to a contiguous one, and the gaps are "
        "written: reflection_pad2d.out changes strides (144, 72, 12, 2) to (72, 36, 6, "
        "1); linear.out of a vector alone",
    ),
    Listed(
        "binary_cross_entropy.out huber_loss.out mse_loss.out smooth_l1_loss.out "
        "soft_margin_loss.out",
        "K-MET-01 wrong_type *",
        "on the way to a mean or a sum the destination is resized to all losses: its "
        "memory moves, or huber_loss.out(p, q, out=buffer[0]) writes buffer[1] too",
    ),
    Listed(
        "binary_cross_entropy.out",
        "K-LIV-01 raises *",
        "losses are computed in the shape of their average: with weights that raises, "
        "without them it is another number, 0.69 for 1.37",
    ),
    Listed(
        "_foreach_add.List _foreach_sub.List",
        "C-EXC-01 *_unexpected * float16",
        "alpha times other is stored in float16 but in vectorised code: of 8 numbers "
        "torch.add(-inf, 40000, alpha=2) is NaN, of 64 -inf",
    ),
    Listed(
        "index_put nll_loss* prod",
        "* y *16",
        "sums and products are kept in the data's format",
    ),
    Listed(
        "addbmm addmv",
        "* y *16",
        "each product is stored in the data's format, in which it may overflow, before "
        "it is added",
    ),
)


@cache
def _platform() -> dict[str, dict[str, Any]]:
    """Return what torch's kernels of the suite's operators claim, by their names."""
    return {k.name: k.excused for k in kernels("cpu", torch.__version__)}


def is_composition(name: str) -> bool:
    """Whether the dispatcher has an overload as a composition of others."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(f"aten::{name}", key) for key in _COMPOSITIONS)


def claims_of(name: str) -> dict[str, Any]:
    """Return the declaration of torch's own kernel of an overload.

    Raises:
        ValueError: where one claims to store intermediate results, and has none.
    """
    name = _plain(name)
    suite = ROWS[name].suite
    made = dict(_platform().get(f"torch_{suite}", {})) if suite else {}
    for globs, claims, _ in CLAIMS:
        if _matches(name, globs):
            if claims is STORED and not is_composition(name):
                raise ValueError(f"{name} is no composition of other operators")
            made |= claims
    return made


def unlisted(name: str, findings: Iterable[str]) -> list[str]:
    """Return the findings in an overload that are not listed."""
    names = (name, _plain(name))
    return [
        key
        for key in findings
        if not any(
            _matches(each, known.overloads) and fnmatch.fnmatchcase(key, known.finding)
            for known in LISTED
            for each in names
        )
    ]


def _plain(name: str) -> str:
    """Return the overload that has the row of an in-place one, or of one with `out`."""
    return name if name in ROWS else base_of(name) or name


def _matches(name: str, globs: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs.split())
