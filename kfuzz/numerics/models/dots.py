"""Sums of products: matrix products, linear layers, convolutions.

All are matrix products of finite operands in float64, with a bound on what a
correct kernel may add to them, and classes found without doing the arithmetic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    ANY,
    NAN,
    Acceptance,
    Problem,
    SumClasses,
    sum_classes,
)
from kfuzz.numerics.accumulation import (
    U32,
    U64,
    Accumulation,
    can_overflow,
    finite_or_zero,
    gamma,
    growth,
    is_finite,
    meet,
    products_exactly,
    zero,
)
from kfuzz.numerics.formats import FORMATS


@dataclass(frozen=True)
class Dots:
    """Sums of products as a correct kernel may hold them before the store.

    All tensors have the shape of the result.

    Attributes:
        value: float64, the sum of the finite terms.
        magnitude: float64, the sum of their magnitudes.
        error: float64, the bound on a kernel's distance from `value`.
        classes: what special terms make of it.
        admitted: uint8, admitted classes; those of `classes`, and what operands
            that may vanish give besides.
    """

    value: Tensor
    magnitude: Tensor
    error: Tensor
    classes: SumClasses
    admitted: Tensor

    @property
    def reference(self) -> Tensor:
        """The result, NaN and infinities included."""
        return torch.where(self.classes.finite, self.value, self.classes.reference)

    def accepted(self, problem: Problem) -> Acceptance:
        """Return the acceptance of the sums as they are."""
        classes = replace(self.classes, admitted=self.admitted)
        return classes.accepted(problem, self.value, self.error)

    def reshaped(self, *shape: int) -> "Dots":
        """Return the sums in another shape."""
        return _mapped(lambda x: x.reshape(shape), self)


def _mapped(change: Callable[..., Tensor], *parts: Dots) -> Dots:
    """Return sums of which each tensor is made of those of other sums."""

    def made(of: Sequence[object], name: str) -> Tensor:
        return change(*(getattr(each, name) for each in of))

    classes = [part.classes for part in parts]
    own = ("value", "magnitude", "error", "admitted")
    return Dots(
        **{name: made(parts, name) for name in own},
        classes=SumClasses(*(made(classes, f.name) for f in fields(SumClasses))),
    )


def dots(
    problem: Problem,
    a: Tensor,
    b: Tensor,
    *,
    addend: Tensor | None = None,
    present: Tensor | None = None,
) -> Dots:
    """Return a b, or a b + addend, with its bound and its classes.

    The error is R (|a| |b| + |addend|), R the declared accumulation's (any order,
    the addend at any place), what underflow may take from K products and sums,
    and what is lost with operands too small for the arithmetic to hold; 0 where
    the exactness test holds.

    Args:
        problem: format of the data and declaration.
        a: float64 [..., M, K].
        b: float64 [..., K, N].
        addend: float64, broadcastable to [..., M, N]: one more term of each sum.
        present: bool, broadcastable to [..., K, N]; False where b is padding, a
            zero that some kernels multiply by and others leave out.
    """
    acc = problem.accumulation
    flush = problem.flushes
    floor = acc.operand_floor(problem.format, flush=flush)
    finite_a, finite_b = finite_or_zero(a), finite_or_zero(b)
    size_a, size_b = finite_a.abs(), finite_b.abs()
    small_a, small_b = _small(size_a, floor), _small(size_b, floor)
    special, vanishes = _met(~is_finite(a), ~is_finite(b)), _met(small_a, small_b)
    # On either depend further matrix products: for those members alone that need them;
    # on a GPU, where a batch's take less than asking for them, for all.
    if not a.is_cuda:
        hard = special | vanishes
        halves = [of.nonzero().flatten() for of in (~hard, hard)]
        if all(map(len, halves)):
            made = [
                dots(
                    problem, a[i], b[i],
                    addend=_of(addend, i, a), present=_of(present, i, a),
                )
                for i in halves
            ]  # fmt: skip
            order = torch.cat(halves).argsort()
            return _mapped(lambda *x: torch.cat(x)[order], *made)
    is_special, any_vanish = torch.stack((special.any(), vanishes.any())).tolist()
    terms = a.shape[-1] + (addend is not None)
    value, magnitude = finite_a @ finite_b, size_a @ size_b
    none = zero(a)
    extra = none
    if addend is not None:
        extra = finite_or_zero(addend)
        value, magnitude = value + extra, magnitude + extra.abs()
    coefficient = acc.products(terms, problem.format) + gamma(terms, U64)
    error = coefficient * magnitude + acc.lost(terms + 1, flush=flush)
    lossy = []
    if any_vanish:
        lossy = [small_a.any(-1, keepdim=True), small_b.any(-2, keepdim=True)]
        lost_a = torch.where(small_a, size_a, none)
        lost_b = torch.where(small_b, size_b, none)
        error = error + (lost_a @ size_b + size_a @ lost_b)
    if floor and addend is not None:
        small = _small(extra.abs(), floor)
        lossy.append(small)
        error = error + torch.where(small, extra.abs(), none)
    exact = _exact(
        finite_a, finite_b, extra, magnitude, problem, acc, lossy, flush=flush
    )
    error = torch.where(exact, none, error)

    # P + N = S and P - N = value for the sums P, N of terms of either sign.
    positive = (magnitude + value).clamp(min=0) / 2
    negative = (magnitude - value).clamp(min=0) / 2
    overflows = can_overflow(positive, negative, terms, acc)
    limit = acc.operand_limit(problem.format)
    if problem.format.max_finite > limit:
        overflows = overflows | (size_a > limit).any(-1, keepdim=True)
        overflows = overflows | (size_b > limit).any(-2, keepdim=True)
    classes, loose = classes_of_products(
        a, b, addend, present, overflows, special=is_special
    )
    admitted = classes.admitted
    if is_special:
        inf_a, inf_b = torch.isinf(a), torch.isinf(b)
        if floor:  # what may vanish meets an infinity: 0 * Inf is NaN
            loose = loose | meets((small_a, inf_a), (inf_b, small_b))
        if acc.splits(problem.format):
            # The low part of Inf as two TF32 numbers is Inf - Inf.
            loose = loose | inf_a.any(-1, keepdim=True) | inf_b.any(-2, keepdim=True)
        admitted = torch.where(loose, admitted | NAN, admitted)
    return Dots(value, magnitude, error, classes, admitted)


def rounded_before(problem: Problem, made: Dots, addend: Tensor) -> Dots:
    """Return sums whose products may be rounded to the output before the addend.

    With float32 intermediates they are not.

    Args:
        problem: format of the output and declaration.
        made: the sums, addend included.
        addend: float64, broadcastable to their shape.
    """
    out = problem.output
    if problem.declaration.intermediates != "output" or out.unit <= U32:
        return made
    flush = problem.flushes
    size = (made.value - finite_or_zero(addend)).abs() + made.error
    error = made.error + out.unit * size
    error = error + (out.min_normal if flush else out.min_subnormal)
    beyond = (size * (1 + out.unit) > out.max_finite) & made.classes.finite
    classes = replace(made.classes, ambiguous=made.classes.ambiguous | beyond)
    return replace(made, error=error, classes=classes)


def _of(x: Tensor | None, index: Tensor, like: Tensor) -> Tensor | None:
    """Return some members of what is broadcast to the operands."""
    return x if x is None or x.dim() < like.dim() or x.shape[0] == 1 else x[index]


def _met(left: Tensor, right: Tensor) -> Tensor:
    """Return which members a mask of either operand holds for.

    One entry where the operands do not share a leading dimension of members.
    """
    if left.dim() == right.dim() > 2 and left.shape[0] == right.shape[0]:
        return left.flatten(1).any(1) | right.flatten(1).any(1)
    return (left.any() | right.any()).reshape(1)


def _small(size: Tensor, floor: float) -> Tensor:
    """Return where magnitudes are below `floor` and not 0."""
    return (size != 0) & (size < floor)


def _exact(
    a: Tensor,
    b: Tensor,
    addend: Tensor,
    magnitude: Tensor,
    problem: Problem,
    acc: Accumulation,
    lossy: Sequence[Tensor],
    *,
    flush: bool,
) -> Tensor:
    """Return where no order of the sums rounds, and no operand may vanish."""
    bits = acc.exact_products(problem.format)
    if not bits or not a.shape[-1]:
        return magnitude == 0
    exact = products_exactly(magnitude, a, b, addend, acc, flush=flush, bits=bits)
    for mask in lossy:
        exact = exact & ~mask
    return exact


def meets(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Return in which sums some term has what both masks of a pair say.

    Args:
        left: bool [..., M, K] each, of the left operand.
        right: bool [..., K, N], of the right one, as many.
    """
    return meet(torch.cat(tuple(left), -1), torch.cat(tuple(right), -2))


def classes_of_products(
    a: Tensor,
    b: Tensor,
    addend: Tensor | None,
    present: Tensor | None,
    overflows: Tensor,
    *,
    special: bool = True,
) -> tuple[SumClasses, Tensor]:
    """Return the classes of the sums, and where NaN is admitted besides.

    Class-only matrix products: pairs of terms are counted, not multiplied.
    """
    shape, device = overflows.shape, overflows.device
    none = torch.zeros(shape, dtype=torch.bool, device=device)
    nan, plus, minus, loose = none, none, none, none
    if special:
        inf = float("inf")
        there = torch.ones_like(b, dtype=torch.bool) if present is None else present
        there = there.expand_as(b)
        every_a = torch.ones_like(a, dtype=torch.bool)
        inf_a, inf_b, zero_b = a.abs() == inf, b.abs() == inf, (b == 0) & there
        nan = meets(
            (a.isnan(), every_a, a == 0, inf_a), (there, b.isnan(), inf_b, zero_b)
        )
        left = (a == inf, a == -inf, a > 0, a < 0)
        up, down, top, bottom = b > 0, b < 0, b == inf, b == -inf
        plus = meets(left, (up, down, top, bottom))
        minus = meets(left, (down, up, bottom, top))
        if present is not None:
            loose = meets((~is_finite(a),), (~there,))
    if addend is not None:
        nan = nan | addend.isnan()
        plus = plus | (addend == float("inf"))
        minus = minus | (addend == float("-inf"))
    return sum_classes(nan, plus, minus, overflows), loose


# Convolutions in any number of dimensions, and transposed ones, as matrix products.


def convolved(problem: Problem, *, transposed: bool = False) -> Dots:
    """Return the convolution of x with weight, and bias, of a problem.

    A matrix product of weights and columns, K = I R S ... products per element, I the
    channels of one group. Padding, and what a transposed one puts between elements, is
    a term that some kernels multiply out and others skip: beside a weight that is not
    finite both results are admitted.

    Args:
        problem: with the tensors x [members, N, C, *spatial], weight [members, O, I,
            *filter], or [members, C, O, *filter] if transposed, and maybe bias; with
            the integer scalars stride, padding, dilation, groups, and output_padding.
        transposed: whether it is the adjoint of a convolution.

    Returns:
        The sums, [members, N, groups, O, *places], O the results of one group.
    """
    groups = problem.axis("groups")
    stride, padding = problem.axis("stride"), problem.axis("padding")
    dilation = problem.axis("dilation")
    # Groups as a dimension of their own: [members, N, groups, I, *spatial].
    x = torch.unflatten(problem.tensors["x"], 2, (groups, -1))
    weight = torch.unflatten(problem.tensors["weight"], 1, (groups, -1))
    if transposed:
        weight = weight.transpose(2, 3)
    filters, spatial = weight.shape[4:], x.shape[4:]
    met = []
    for n, size in zip(spatial, filters, strict=True):
        tap = torch.arange(size, device=x.device)[:, None] * dilation
        if transposed:
            more = problem.axis("output_padding") - 2 * padding
            places = (n - 1) * stride + dilation * (size - 1) + 1 + more
            at = torch.arange(places, device=x.device) + padding - tap
            there, at = at % stride == 0, at // stride
        else:
            places = (n + 2 * padding - dilation * (size - 1) - 1) // stride + 1
            at = torch.arange(places, device=x.device) * stride - padding + tap
            there = torch.ones_like(at, dtype=torch.bool)
        # [size, places]: the element that a place meets; the one behind the last
        # stands for none.
        met.append(torch.where(there & (at >= 0) & (at < n), at, n))
    dims = len(met)
    index = tuple(
        m.reshape([m.shape[0] if i == d else 1 for i in range(dims)]
                  + [m.shape[1] if i == d else 1 for i in range(dims)])
        for d, m in enumerate(met)
    )  # fmt: skip

    def columns(images: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(images, (0, 1) * dims)
        seen = padded[(..., *index)]  # type: ignore[index]
        return seen.flatten(-dims).flatten(3, 3 + dims)

    present = None
    if any(bool((m == n).any()) for m, n in zip(met, spatial, strict=True)):
        present = columns(torch.ones_like(x[:, :1])) > 0
    bias, addend = problem.tensors.get("bias"), None
    if bias is not None:
        addend = torch.unflatten(bias, 1, (groups, -1))[:, None, ..., None]
    made = dots(
        problem, weight.flatten(3).unsqueeze(1), columns(x),
        addend=addend, present=present,
    )  # fmt: skip
    if addend is not None:
        made = rounded_before(problem, made, addend)
    shape = [m.shape[1] for m in met]
    return made.reshaped(*x.shape[:3], weight.shape[2], *shape)


def merged(made: Dots) -> Dots:
    """Return the sums with the groups' results as one dimension of channels."""
    members, batch, groups, out, *places = made.value.shape
    return made.reshaped(members, batch, groups * out, *places)


# Winograd's minimal filtering: what its transforms add to the error of a convolution.
#
# A tile of m x m outputs of a 3 x 3 filter w over the (m + 2) x (m + 2) patch d is
# A^T (sum over channels of (G w G^T) o (B^T d B)) A (Lavin, Gray 2016). Each entry
# passes the roundings of both transforms, those of the sum of products and those of the
# inverse transform; all are relative to the same formula of magnitudes,
#
#     S = |A^T| (sum of (|G| |w| |G|^T) o (|B^T| |d| |B|)) |A|,
#
# which exceeds the convolution of magnitudes, and does not change if rows of one matrix
# are scaled and those of another scaled back. So E = ((1 + R) (1 + gamma(t)) - 1) S, R
# the accumulation's for the products over channels, t the roundings below.

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
    plain, size = _of_channels(u, v), _of_channels(u + lost_u, v + lost_v)
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


def _of_channels(u: Tensor, v: Tensor) -> Tensor:
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
