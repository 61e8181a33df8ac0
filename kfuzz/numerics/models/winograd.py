"""Winograd's minimal filtering: what its transforms add to the error of a convolution.

A tile of m x m outputs of a 3 x 3 filter w over the (m + 2) x (m + 2) patch d is
A^T (sum over channels of (G w G^T) o (B^T d B)) A (Lavin, Gray 2016). Each entry passes
the roundings of both transforms, those of the sum of products and those of the inverse
transform; all are relative to the same formula of magnitudes,

    S = |A^T| (sum of (|G| |w| |G|^T) o (|B^T| |d| |B|)) |A|,

which exceeds the convolution of magnitudes, and does not change if rows of one matrix
are scaled and those of another scaled back. So E = ((1 + R) (1 + gamma(t)) - 1) S, R
the accumulation's for the products over channels, t the roundings below.
"""

import math
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import ANY, Problem
from kfuzz.numerics.accumulation import gamma, growth
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.models.dots import Dots

# Roundings of one entry along one axis. Of a filter: the constant, its product, two
# additions. Of a patch: a product, three additions of at most four terms. Of a tile:
# four additions of at most five terms, one more of a sum that is kept.
_FILTER, _PATCH, _TILE = 4, 4, 5
ROUNDINGS: Final = 2 * (_FILTER + _PATCH + _TILE)


# The matrices of F(m x m, 3 x 3) as magnitudes: |B^T| [m + 2, m + 2] of a patch, |G|
# [m + 2, 3] of the filter, |A^T| [m, m + 2] of a tile.
Matrix = tuple[tuple[float, ...], ...]
Transform = tuple[Matrix, Matrix, Matrix]

# Points 0, 1, -1 and infinity.
F2: Final[Transform] = (
    ((1, 0, 1, 0), (0, 1, 1, 0), (0, 1, 1, 0), (0, 1, 0, 1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, 1, 1)),
)
# Points 0, 1, -1, 2, -2 and infinity.
F4: Final[Transform] = (
    (
        (4, 0, 5, 0, 1, 0), (0, 4, 4, 1, 1, 0), (0, 4, 4, 1, 1, 0),
        (0, 2, 1, 2, 1, 0), (0, 2, 1, 2, 1, 0), (0, 4, 0, 5, 0, 1),
    ),
    (
        (1 / 4, 0, 0), (1 / 6, 1 / 6, 1 / 6), (1 / 6, 1 / 6, 1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, 1 / 12, 1 / 6), (0, 0, 1),
    ),
    (
        (1, 1, 1, 1, 1, 0), (0, 1, 1, 2, 2, 0),
        (0, 1, 1, 4, 4, 0), (0, 1, 1, 8, 8, 1),
    ),
)  # fmt: skip


def widened(
    problem: Problem, made: Dots, images: Tensor, filters: Tensor, *, padding: int
) -> Dots:
    """Return sums of products as a kernel may hold them that makes them by tiles.

    Of two or four outputs a side; undecided is a tile that meets what is not finite.

    Args:
        problem: format of the data and declaration.
        made: the convolution, [members, N, groups, O / groups, rows, columns].
        images: float64 [members, N, groups, I, H, W].
        filters: float64 [members, groups, O / groups, I, 3, 3].
        padding: zeros on each side.
    """
    shape = made.value.shape[-2:]
    found = []
    for transform in (F2, F4):
        patches = _patches(images, padding, len(transform[2]), shape)
        tiles = _by_tiles(problem, patches, filters, transform)
        found.append([_joined(t, shape) for t in tiles])
    (error, beyond), (other, further) = found
    error = made.error + torch.maximum(error, other)
    ambiguous = made.classes.ambiguous | beyond | further
    admitted = torch.where(torch.isinf(error), ANY, made.admitted).to(torch.uint8)
    classes = replace(made.classes, ambiguous=ambiguous)
    return replace(made, error=error, classes=classes, admitted=admitted)


def _by_tiles(
    problem: Problem, patches: Tensor, filters: Tensor, transform: Transform
) -> tuple[Tensor, Tensor]:
    """Return the error, infinite where nothing is known, and what may overflow.

    Both are [members, N, groups, O / groups, tiles, tiles, m m].
    """
    # Both sides of a transform as one matrix: vec(B^T d B) = (B^T x B^T) vec(d).
    b, g, a = (
        torch.kron(m, m).mT
        for m in (
            torch.tensor(rows, dtype=torch.float64, device=filters.device)
            for rows in transform
        )
    )
    claims, out = problem.declaration, problem.output
    acc = problem.accumulation
    bound = growth if problem.attribution else gamma
    stored = claims.intermediates == "output" and out.unit > acc.format.unit
    flush = problem.flushes
    floor = acc.operand_floor(problem.format, flush=flush)

    patches, filters = patches.flatten(-2), filters.flatten(-2)
    d, w = (torch.where(torch.isfinite(t), t.abs(), 0.0) for t in (patches, filters))
    v, u = d @ b, w @ g
    # What operands lose that vanish, and results of a transform that underflow.
    least, kept = (
        f.min_normal if flush else f.min_subnormal for f in (acc.format, out)
    )
    kept = kept if stored else 0.0
    lost = ROUNDINGS * least + kept
    lost_v = torch.where(d < floor, d, 0.0) @ b + lost
    lost_u = torch.where(w < floor, w, 0.0) @ g + lost
    plain, size = _met(u, v), _met(u + lost_u, v + lost_v)
    channels = filters.shape[3]
    # Transformed operands have float32's bits, unless stored in the output's.
    r = acc.products(channels, out if stored else FORMATS["float32"], extra=1)
    r = (1 + r) * (1 + bound(ROUNDINGS, acc.format.unit)) - 1
    if stored:  # both transformed operands, and the sums of their products
        r = (1 + r) * (1 + bound(3, out.unit)) - 1
    error = ((1 + r) * size - plain + channels * least + lost) @ a

    limit = min(acc.limit, out.max_finite) / 2 if stored else acc.limit / 2
    beyond = size @ a > limit
    beyond = beyond | _of_patches(v > limit) | _of_filters(u > limit)
    odd = _of_patches(~torch.isfinite(patches)) | _of_filters(~torch.isfinite(filters))
    return torch.where(odd, float("inf"), error), beyond


def _of_patches(found: Tensor) -> Tensor:
    """Return [members, N, groups, 1, tiles, tiles, 1]: some entry or channel is."""
    return found.any(-1).any(3)[:, :, :, None, ..., None]


def _of_filters(found: Tensor) -> Tensor:
    """Return [members, 1, groups, O / groups, 1, 1, 1]: some entry or channel is."""
    return found.flatten(-2).any(-1)[:, None, ..., None, None, None]


def _patches(images: Tensor, padding: int, m: int, places: torch.Size) -> Tensor:
    """Return [members, N, groups, I, tiles, tiles, m + 2, m + 2].

    The last tiles of a row and of a column reach into zeros.
    """
    ends = [
        -(-n // m) * m + 2 - size - padding
        for n, size in zip(places, images.shape[-2:], strict=True)
    ]
    room = (padding, ends[1], padding, ends[0])
    padded = torch.nn.functional.pad(images, room)
    return padded.unfold(-2, m + 2, m).unfold(-2, m + 2, m)


def _met(u: Tensor, v: Tensor) -> Tensor:
    """Return the sums over channels of products of the transformed operands.

    Args:
        u: [members, groups, O / groups, I, k k].
        v: [members, N, groups, I, rows, columns, k k].
    """
    return torch.einsum("mgoik,mngirsk->mngorsk", u, v)


def _joined(tiles: Tensor, shape: torch.Size) -> Tensor:
    """Return [..., rows, columns, m m] as the [..., *shape] that they cover."""
    side = math.isqrt(tiles.shape[-1])
    apart = torch.unflatten(tiles, -1, (side, side)).transpose(-3, -2)
    return apart.flatten(-4, -3).flatten(-2)[..., : shape[0], : shape[1]]
