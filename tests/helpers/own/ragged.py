"""Ragged batches, states, pages and lists."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like, without_strides


def _parts(cu: Tensor) -> Tensor:
    """The number of the part that each element belongs to."""
    return torch.repeat_interleave(torch.arange(len(cu) - 1), cu.diff().long())


# Sums of parts ---------------------------------------------------------------------


def segment_sum(x: Tensor, cu: Tensor) -> Tensor:
    """The sum of each part, 0 of an empty one."""
    ends = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    return torch.stack([x[a:b].sum(0) for a, b in ends])


def _sum_by_index(x: Tensor, cu: Tensor) -> Tensor:
    y = torch.zeros(len(cu) - 1, x.shape[1])
    return like(x, y.index_add(0, _parts(cu), x.float()))


def _sum_by_product(x: Tensor, cu: Tensor) -> Tensor:
    chosen = torch.nn.functional.one_hot(_parts(cu), len(cu) - 1)
    terms = torch.where(chosen[:, :, None] > 0, x.float()[:, None], 0.0)
    return like(x, terms.flip(0).sum(0))


def _sum_in_double(x: Tensor, cu: Tensor) -> Tensor:
    y = torch.zeros(len(cu) - 1, x.shape[1], dtype=torch.float64)
    return like(x, y.index_add(0, _parts(cu), x.double()))


def _sum_drops_tail(x: Tensor, cu: Tensor) -> Tensor:
    made = []
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        whole = (b - a) // 4 * 4 + (b - a) % 4 * ((b - a) % 4 != 1)
        made.append(x[a : a + whole].float().sum(0))
    return like(x, torch.stack(made))


def _sum_of_empty_is_next(x: Tensor, cu: Tensor) -> Tensor:
    y = _sum_by_index(x, cu)
    empty = (cu.diff() == 0) & (cu[:-1] < len(x))
    y[empty] = x[cu[:-1][empty].long()]
    return y


def _sum_in_16_bits(x: Tensor, cu: Tensor) -> Tensor:
    y = torch.zeros(len(cu) - 1, x.shape[1], dtype=x.dtype)
    for t, part in enumerate(_parts(cu).tolist()):
        y[part] += x[t]
    return y


def _sum_without_strides(x: Tensor, cu: Tensor) -> Tensor:
    return _sum_by_index(without_strides(x), cu)


# Softmax of parts ------------------------------------------------------------------


def segment_softmax(x: Tensor, cu: Tensor) -> Tensor:
    """softmax within each part."""
    ends = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    return torch.cat([x[a:b].softmax(0) for a, b in ends])


def _softmax_scattered(x: Tensor, cu: Tensor) -> Tensor:
    part, n = _parts(cu), len(cu) - 1
    wide = x.float()
    top = torch.full((n,), -torch.inf).scatter_reduce(0, part, wide, "amax")
    e = (wide - top[part]).exp()
    return like(x, e / torch.zeros(n).index_add(0, part, e)[part])


def _softmax_by_reciprocal(x: Tensor, cu: Tensor) -> Tensor:
    y = torch.empty_like(x)
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        if b > a:
            wide = x[a:b].float()
            e = torch.exp2((wide - wide.max()) * 1.4426950408889634)
            y[a:b] = e * e.sum().reciprocal()
    return y


def _softmax_of_all(x: Tensor, cu: Tensor) -> Tensor:
    part, n = _parts(cu), len(cu) - 1
    e = (x.float() - x.float().amax()).exp() if len(x) else x.float()
    return like(x, e / torch.zeros(n).index_add(0, part, e)[part])


def _softmax_swallows_nan(x: Tensor, cu: Tensor) -> Tensor:
    return like(x, _softmax_scattered(torch.nan_to_num(x.float(), nan=0.0,
                posinf=torch.inf, neginf=-torch.inf), cu))  # fmt: skip


def _softmax_leaks(x: Tensor, cu: Tensor) -> Tensor:
    y = torch.empty_like(x)
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        y[a:b] = x[a : b + 1].float().softmax(0)[: b - a]
    return y


# Attention over parts --------------------------------------------------------------


def ragged_attention(
    q: Tensor, k: Tensor, v: Tensor, cu: Tensor, *, causal: bool
) -> Tensor:
    """softmax(q k / sqrt(D)) v within each sequence."""
    rows = []
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        scores = q[a:b] @ k[a:b].T / q.shape[1] ** 0.5
        if causal:
            later = torch.ones(b - a, b - a, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        rows.append(scores.softmax(-1) @ v[a:b])
    return torch.cat(rows)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, cu: Tensor, causal: bool, *,
    reach: int = 0, diagonal: int = 1, scaled: bool = True, rescales: bool = True,
    block: int = 8,
) -> Tensor:  # fmt: skip
    """Online, in blocks of keys; faults by their keywords."""
    y = torch.zeros_like(v, dtype=torch.float32)
    scale = q.shape[1] ** -0.5 if scaled else 1.0
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        if a == b:
            continue
        n = b - a
        top = torch.full((n, 1), -torch.inf)
        total, out = torch.zeros(n, 1), torch.zeros(n, v.shape[1])
        for s in range(a, min(b + reach, len(k)), block):
            e = min(s + block, b + reach, len(k))
            scores = q[a:b].float() @ k[s:e].float().T * scale
            later = torch.arange(s, e) - a >= torch.arange(n)[:, None] + diagonal
            later = later & torch.tensor(causal)
            scores = scores.masked_fill(later, -torch.inf)
            new = torch.maximum(top, scores.amax(1, keepdim=True))
            safe = torch.where(new == -torch.inf, 0.0, new)
            p = (scores - safe).exp()
            kept = (top - safe).exp() if rescales else torch.ones_like(top)
            total = total * kept + p.sum(1, keepdim=True)
            terms = p[:, :, None] * v[s:e].float()
            terms = torch.where(later[:, :, None], 0.0, terms)
            out = out * kept + terms.sum(1)
            top = new
        y[a:b] = out / total
    return like(v, y)


# A state ---------------------------------------------------------------------------


def decayed_scan(
    x: Tensor, cu: Tensor, decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """h = exp(decay) h + x along each sequence, from its state."""
    y, last = torch.empty_like(x), []
    for b in range(len(cu) - 1):
        h = state[b]
        for t in range(cu[b], cu[b + 1]):
            h = decay[t].exp() * h + x[t]
            y[t] = h
        last.append(h)
    return y, torch.stack(last)


def _scan_in_steps(x: Tensor, cu: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    starts, ends, y = cu[:-1].long(), cu[1:].long(), torch.empty_like(x)
    for i in range(int(cu.diff().max())):
        live = starts + i < ends
        t = (starts + i)[live]
        h = torch.exp2(decay[t].float() * 1.4426950408889634)[:, None] * state[live]
        state[live] = h + x[t].float()
        y[t] = like(x, state[live])
    return y


def _scan_keeps_state(x: Tensor, cu: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    return _scan_in_steps(x, cu, decay, state.clone())


def _scan_clears_empty(x: Tensor, cu: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    y = _scan_in_steps(x, cu, decay, state)
    state[cu.diff() == 0] = 0
    return y


def _scan_decays_late(x: Tensor, cu: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    y = torch.empty_like(x)
    for b in range(len(cu) - 1):
        h = state[b].clone()
        for t in range(int(cu[b]), int(cu[b + 1])):
            before = decay[max(t - 1, int(cu[b]))].float().exp()
            h = before * h + x[t].float()
            y[t] = like(x, h)
        state[b] = h
    return y


def _scan_state_in_16_bits(
    x: Tensor, cu: Tensor, decay: Tensor, state: Tensor
) -> Tensor:
    y = torch.empty_like(x)
    for b in range(len(cu) - 1):
        h = state[b].clone()
        for t in range(int(cu[b]), int(cu[b + 1])):
            h = like(x, decay[t].float().exp() * h + x[t].float()).float()
            y[t] = like(x, h)
        state[b] = h
    return y


def causal_conv(x: Tensor, weight: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution that continues from the last inputs."""
    k = weight.shape[1]
    whole = torch.cat([state, x], 1)
    windows = torch.stack([whole[:, i : i + x.shape[1]] for i in range(k)], -1)
    return (windows * weight[:, None]).sum(-1), whole[:, whole.shape[1] - k + 1 :]


def _conv_by_unfolding(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    k, whole = weight.shape[1], torch.cat([state, x], 1)
    y = torch.einsum("dtk,dk->dt", whole.float().unfold(1, k, 1), weight.float())
    state.copy_(whole[:, whole.shape[1] - k + 1 :])
    return like(x, y)


def _conv_reversed(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    return _conv_by_unfolding(x, weight.flip(1), state)


def _conv_short_state(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    y = _conv_by_unfolding(x, weight, kept := state.clone())
    n = state.shape[1]
    if x.shape[1] >= n:
        state.copy_(kept)
    else:  # what was there before is not moved on
        state[:, n - x.shape[1] :] = x
    return y


# Gaps ------------------------------------------------------------------------------


def spanned_means(x: Tensor, spans: Tensor, *, longest: int) -> tuple[Tensor, Tensor]:
    """The mean of each part, 0 of an empty one; how long it is."""
    rows = [x[a:b].sum(0) / max(b - a, 1) for a, b in spans.tolist()]
    return torch.stack(rows), spans[:, 1] - spans[:, 0]


def _means(
    x: Tensor, starts: Tensor, lengths: Tensor, longest: int
) -> tuple[Tensor, Tensor]:
    total = torch.zeros(len(starts), x.shape[1])
    for i in range(longest):
        live = i < lengths
        total[live] += x[(starts + i)[live].long()].float()
    return like(x, total / lengths.clamp(min=1)[:, None]), lengths.long()


def _means_of_spans(x: Tensor, spans: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    return _means(x, spans[:, 0], spans[:, 1] - spans[:, 0], longest)


def _means_over_gaps(x: Tensor, spans: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    ends = torch.cat([spans[1:, 0], spans[-1:, 1]])  # of a batch without gaps
    lengths = ends - spans[:, 0]
    return _means(x, spans[:, 0], lengths, max(int(lengths.amax()), 0))


def _means_of_padded(x: Tensor, spans: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    y, lengths = _means_of_spans(x, spans, longest)
    return like(x, y.float() * lengths[:, None] / max(longest, 1)), lengths


# Pages and lists -------------------------------------------------------------------


def paged_rows(cache: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    """The sum of the first rows of each sequence's pages."""
    rows = cache[pages].flatten(1, 2)
    place = torch.arange(rows.shape[1])
    live = place < (lengths % (rows.shape[1] + 1))[:, None]
    return torch.where(live[:, :, None], rows, 0.0).sum(1)


def _paged_one_by_one(cache: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    size, made = cache.shape[1], []
    for b in range(len(pages)):
        n = int(lengths[b]) % (pages.shape[1] * size + 1)
        h = torch.zeros(cache.shape[2])
        for p in range(-(-n // size) if size else 0):
            h = h + cache[pages[b, p], : min(size, n - p * size)].float().sum(0)
        made.append(h)
    return (
        like(cache, torch.stack(made)) if made else cache.new_empty(0, cache.shape[2])
    )


def _paged_whole_pages(cache: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    size = max(cache.shape[1], 1)
    whole = pages.shape[1] * cache.shape[1]
    up = (lengths % (whole + 1) + size - 1) // size * size
    rows = cache[pages.long()].flatten(1, 2).float()
    live = torch.arange(whole) < up[:, None]
    return like(cache, torch.where(live[:, :, None], rows, 0.0).sum(1))


def _paged_in_order(cache: Tensor, pages: Tensor, lengths: Tensor) -> Tensor:
    return _paged_one_by_one(cache, pages.sort(1).values, lengths)


def weighted_list(xs: list[Tensor], w: Tensor, y: Tensor) -> Tensor:
    """y and tensors, each by its weight."""
    for i, x in enumerate(xs):
        y = y + w[i] * x
    return y


def _list_stacked(xs: list[Tensor], w: Tensor, y: Tensor) -> Tensor:
    terms = torch.stack([x.float() for x in xs]) * w[: len(xs), None].float()
    return like(y, terms.flip(0).sum(0) + y.float())


def _list_first_two(xs: list[Tensor], w: Tensor, y: Tensor) -> Tensor:
    return _list_stacked(xs[:2], w, y)


_CU = ks.offsets("S", of="T")
_RAGGED = {"x": ks.tensors("T D"), "cu": _CU}

SUBJECTS = (
    Subject(
        kfuzz.reference(segment_sum, _RAGGED),
        {
            "scattered": _sum_by_index,
            "by a product, backwards": _sum_by_product,
            "in float64": _sum_in_double,
        },
        {
            "drops a tail": _sum_drops_tail,
            "takes the next for an empty part": _sum_of_empty_is_next,
            "in 16 bits": _sum_in_16_bits,
            "ignores strides": _sum_without_strides,
        },
    ),
    Subject(
        kfuzz.reference(segment_softmax, {"x": ks.tensors("T"), "cu": _CU}),
        {"scattered": _softmax_scattered, "by a reciprocal": _softmax_by_reciprocal},
        {
            "one maximum for all": _softmax_of_all,
            "swallows NaN": _softmax_swallows_nan,
            "reads the next part": _softmax_leaks,
        },
    ),
    Subject(
        kfuzz.reference(
            ragged_attention,
            {
                "q": ks.tensors("T D"),
                "k": ks.tensors("T D"),
                "v": ks.tensors("T E", within=(-1e30, 1e30)),  # sums of them overflow
                "cu": ks.offsets("S", of="T", dtype="int32"),
                "causal": ks.scalar(False, (True,)),
            },
            shape_class="D >= 1",
        ),
        {
            "online": lambda q, k, v, cu, causal: _attend(q, k, v, cu, causal),
            "in large blocks": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, block=64
            ),
        },
        {
            "sees the next sequence": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, reach=1
            ),
            "not scaled": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, scaled=False
            ),
            "sees one key later": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, diagonal=2
            ),
            "never rescales": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, rescales=False
            ),
        },
    ),
    Subject(
        kfuzz.reference(
            spanned_means,
            {
                "x": ks.tensors("T D"),
                "spans": ks.spans("B", of="T"),
                "longest": ks.longest("spans"),
            },
            outputs=("mean", "length"),
            shape_class="B >= 1",
        ),
        {"starts and lengths": _means_of_spans},
        {"as if without gaps": _means_over_gaps, "of padded": _means_of_padded},
    ),
    Subject(
        kfuzz.reference(
            decayed_scan,
            {
                "x": ks.tensors("T D"),
                "cu": _CU,
                "decay": ks.tensors("T", within=(None, 0)),
                "state": ks.tensors("B D", dtype="float32"),
            },
            outputs=("y", "state"),
            results={"state": "float32"},
            shape_class="S == B + 1 and T <= 40",
        ),
        {"all sequences at once": _scan_in_steps},
        {
            "leaves the state": _scan_keeps_state,
            "clears the state of an empty one": _scan_clears_empty,
            "decays a step late": _scan_decays_late,
            "keeps the state in 16 bits": _scan_state_in_16_bits,
        },
        {"inplace": ("state",)},
    ),
    Subject(
        kfuzz.reference(
            causal_conv,
            {
                "x": ks.tensors("D T"),
                "weight": ks.tensors("D K"),
                "state": ks.tensors("D P"),
            },
            outputs=("y", "state"),
            shape_class="K == P + 1",
        ),
        {"by unfolding": _conv_by_unfolding},
        {"weights reversed": _conv_reversed, "a short step": _conv_short_state},
        {"inplace": ("state",)},
    ),
    Subject(
        kfuzz.reference(
            paged_rows,
            {
                "cache": ks.tensors("P L D"),
                "pages": ks.indices("B Q", below="P", distinct="throughout"),
                "lengths": ks.tensors("B", dtype="int32", within=(0, 40)),
            },
        ),
        {"one by one": _paged_one_by_one},
        {"whole pages": _paged_whole_pages, "pages in order": _paged_in_order},
    ),
    Subject(
        kfuzz.reference(
            weighted_list,
            {
                "xs": ks.lists(ks.tensors("N"), 3),
                "w": ks.tensors("W"),
                "y": ks.tensors("N"),
            },
            shape_class="W >= 3",
        ),
        {"stacked": _list_stacked},
        {"the first two": _list_first_two},
    ),
)
