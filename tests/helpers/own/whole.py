"""Integers and truth values, as arguments and as results."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like, without_strides


def histogram(x: Tensor, bins: Tensor, *, count: int) -> tuple[Tensor, Tensor]:
    """How many elements fall into each bin, and their sums."""
    made = torch.zeros(count, dtype=torch.int64)
    sums = torch.zeros(count, dtype=x.dtype)
    return made.index_add(0, bins, torch.ones_like(bins)), sums.index_add(0, bins, x)


def _counts_by_product(x: Tensor, bins: Tensor, count: int) -> tuple[Tensor, Tensor]:
    chosen = bins[:, None] == torch.arange(count)
    sums = torch.where(chosen, x.float()[:, None], 0.0).sum(0)
    return chosen.sum(0), like(x, sums)


def _counts_no_twice(x: Tensor, bins: Tensor, count: int) -> tuple[Tensor, Tensor]:
    _, sums = _counts_by_product(x, bins, count)
    made = torch.zeros(count, dtype=torch.int64)
    made[bins.long()] = made[bins.long()] + 1  # of equal ones a single one counts
    return made, sums


def successor(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """k + 1 exactly, and 3 x."""
    return k + 1, 3 * x


def integer_scan(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Cumulative sums of integers, and how many numbers are positive so far."""
    return k.cumsum(-1), (x > 0).cumsum(-1)


def _scan_in_blocks(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    made, positive = torch.empty_like(k, dtype=torch.int64), []
    carry: Tensor | int = 0
    for s in range(0, k.shape[-1], 16):
        block = k[..., s : s + 16].long().cumsum(-1) + carry
        made[..., s : s + 16] = block
        carry = block[..., -1:]
    for i in range(x.shape[-1]):
        positive.append((x[..., : i + 1] > 0).sum(-1))
    count = torch.stack(positive, -1) if positive else (x > 0).long()
    return made, count


def _scan_counts_zeros(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return k.cumsum(-1), (x >= 0).cumsum(-1)


def flags(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether x is below y, whether it is NaN, whether the last axis has any."""
    less = x < y
    return less, x.isnan(), less.any(-1)


def found_first(x: Tensor) -> Tensor:
    """The place of the greatest element along the last axis, the first of equals."""
    return x.argmax(-1)


def _first_by_scan(x: Tensor) -> Tensor:
    place = torch.zeros(x.shape[:-1], dtype=torch.int64)
    best = x[..., 0].float()
    for i in range(1, x.shape[-1]):
        now = x[..., i].float()
        more = (now > best) | (now.isnan() & ~best.isnan())
        place, best = torch.where(more, i, place), torch.where(more, now, best)
    return place


def _last_of_equals(x: Tensor) -> Tensor:
    return x.shape[-1] - 1 - _first_by_scan(x.flip(-1))


def _first_ignores_nan(x: Tensor) -> Tensor:
    return torch.nan_to_num(x, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf
                            ).argmax(-1)  # fmt: skip


def dequantized(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """(code - zero) * scale, with a scale for each group of the last axis."""
    groups, size = scale.shape[-1], codes.shape[-1] // max(scale.shape[-1], 1)
    wide = scale.repeat_interleave(size, -1)
    return (codes - zero.repeat_interleave(size, -1)) * wide if groups else codes * 1.0


def _dequantized_by_groups(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    n, g = scale.shape
    parts = codes.reshape(n, g, codes.shape[1] // g).to(torch.int32) - zero[
        :, :, None
    ].to(torch.int32)
    made = parts.float() * scale[:, :, None].float()
    return like(scale, made.reshape(codes.shape))


def _dequantized_wraps(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    n, g = scale.shape
    parts = codes.reshape(n, g, codes.shape[1] // g) - zero[:, :, None]  # in 8 bits
    made = parts.float() * scale[:, :, None].float()
    return like(scale, made.reshape(codes.shape))


def int8_product(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """a b in integers, times a scale for each row."""
    return scale[:, None] * (a @ b)


def _product_in_blocks(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int32)
    for s in range(0, a.shape[1], 32):
        total += a[:, s : s + 32].to(torch.int32) @ b[s : s + 32].to(torch.int32)
    return like(scale, total.float() * scale.float()[:, None])


def _product_drops_k(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    whole = a.shape[1] // 4 * 4
    return _product_in_blocks(a[:, :whole], b[:whole], scale)


SUBJECTS = (
    Subject(
        kfuzz.reference(
            histogram,
            {
                "x": ks.tensors("N"),
                "bins": ks.indices("N", below="count"),
                "count": ks.scalar(8, (1, 3, 40)),
            },
            outputs=("counts", "sums"),
        ),
        {"by comparison": _counts_by_product},
        {"loses equal ones": _counts_no_twice},
        {"out_of_bounds": "undefined"},
    ),
    Subject(
        kfuzz.reference(
            successor,
            {"x": ks.tensors("N"), "k": ks.tensors("N", dtype="int64")},
            outputs=("next", "y"),
        ),
        {"by subtraction": lambda x, k: (k - -1, like(x, x.float() * 3))},
        {
            "in float64": lambda x, k: (
                (k.double() + 1).long(), like(x, 3 * x.float())
            ),
            "ignores strides": lambda x, k: (
                without_strides(k) + 1, like(x, 3 * x.float())
            ),
        },
    ),
    Subject(
        kfuzz.reference(
            integer_scan,
            {"x": ks.tensors("* N"), "k": ks.tensors("* N", dtype="int32")},
            outputs=("sums", "positive"),
        ),
        {"in blocks": _scan_in_blocks},
        {
            "counts zeros": _scan_counts_zeros,
        },
    ),
    Subject(
        kfuzz.reference(
            flags,
            {"x": ks.tensors("* N"), "y": ks.tensors("* N")},
            outputs=("less", "nan", "any"),
        ),
        {
            "turned round": lambda x, y: (y > x, x != x, (y > x).sum(-1) > 0),
            "in float64": lambda x, y: (
                x.double() < y.double(), x.isnan(), (x < y).any(-1)
            ),
        },
        {
            "negated": lambda x, y: (~(x >= y), x.isnan(), (x < y).any(-1)),
            "all for any": lambda x, y: (x < y, x.isnan(), (x < y).all(-1)),
        },
    ),
    Subject(
        kfuzz.reference(
            found_first, {"x": ks.tensors("* N")}, shape_class="N >= 1"
        ),
        {"by a scan": _first_by_scan},
        {"the last of equals": _last_of_equals, "ignores NaN": _first_ignores_nan},
    ),
    Subject(
        kfuzz.reference(
            dequantized,
            {
                "codes": ks.tensors("N K", dtype="int8"),
                "scale": ks.tensors("N G", within="(0, inf)"),
                "zero": ks.tensors("N G", dtype="int8"),
            },
            shape_class="K % G == 0 and G >= 1",
        ),
        {"by groups": _dequantized_by_groups},
        {"wraps": _dequantized_wraps},
    ),
    Subject(
        kfuzz.reference(
            int8_product,
            {
                "a": ks.tensors("M K", dtype="int8"),
                "b": ks.tensors("K N", dtype="int8"),
                "scale": ks.tensors("M"),
            },
        ),
        {"in blocks": _product_in_blocks},
        {"drops a tail of K": _product_drops_k},
    ),
)  # fmt: skip
