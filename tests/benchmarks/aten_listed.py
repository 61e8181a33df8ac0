"""What torch's own CPU kernels claim, by overload, and the findings that are true.

Seen on torch 2.13 and an x86 processor with AVX-512.
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from kfuzz.contracts.aten.rows import ROWS
from kfuzz.contracts.platform.catalogue import kernels

STORED: Final = {"intermediates": "output"}
SINGLE: Final = {"dtypes": "float32"}

# Overloads, what their kernels claim, and why.
CLAIMS: Final[tuple[tuple[str, dict[str, Any], str], ...]] = (
    (
        "addmv addr addmm binary_cross_entropy chain_matmul linalg_multi_dot "
        "cross diff div.Tensor_mode dist hinge_embedding_loss huber_loss ldexp.Tensor "
        "l1_loss mse_loss "
        "logit margin_ranking_loss nanmean poisson_nll_loss sigmoid_backward "
        "pairwise_distance pow.Tensor_Scalar rsqrt soft_margin_loss trapezoid.dx "
        "cosine_*",
        STORED,
        "several operators, or steps of one, each stored in the data's format",
    ),
    (
        "addbmm binary_cross_entropy_with_logits conv_transpose* index_put nll_loss* "
        "cdist special_* avg_pool3d",
        SINGLE,
        "16-bit formats are summed or evaluated in the format itself, or rejected",
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
        "median.dim nanmedian.dim",
        "* values *",
        "memory that nothing wrote is read where all strides are 0: the medians of "
        "torch.full((1,), inf).as_strided((7, 3), (0, 0)) are 1.3e-14",
    ),
    Listed(
        "fmod.* remainder.*",
        "C-EXC-01 nan_unexpected y *",
        "NaN where the quotient overflows: fmod of forty float32 1 by 1e-39 is NaN in "
        "the vectorised part and 9e-40 in the tail",
    ),
)


@cache
def _platform() -> dict[str, dict[str, Any]]:
    """Return what torch's kernels of the suite's operators claim, by their names."""
    return {k.name: k.excused for k in kernels("cpu", torch.__version__)}


def claims_of(name: str) -> dict[str, Any]:
    """Return the declaration of torch's own kernel of an overload."""
    suite = ROWS[name].suite
    made = dict(_platform().get(f"torch_{suite}", {})) if suite else {}
    for globs, claims, _ in CLAIMS:
        if _matches(name, globs):
            made |= claims
    return made


def unlisted(name: str, findings: Iterable[str]) -> list[str]:
    """Return the findings in an overload that are not listed."""
    return [
        key
        for key in findings
        if not any(
            _matches(name, known.overloads) and fnmatch.fnmatchcase(key, known.finding)
            for known in LISTED
        )
    ]


def _matches(name: str, globs: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs.split())
