"""Ragged batches and states."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like


def _parts(cu: Tensor) -> Tensor:
    """The number of the part that each element belongs to."""
    return torch.repeat_interleave(torch.arange(len(cu) - 1), cu.diff().long())


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


def _softmax_of_all(x: Tensor, cu: Tensor) -> Tensor:
    part, n = _parts(cu), len(cu) - 1
    e = (x.float() - x.float().amax()).exp() if len(x) else x.float()
    return like(x, e / torch.zeros(n).index_add(0, part, e)[part])


def _softmax_swallows_nan(x: Tensor, cu: Tensor) -> Tensor:
    return like(x, _softmax_scattered(torch.nan_to_num(x.float(), nan=0.0,
                posinf=torch.inf, neginf=-torch.inf), cu))  # fmt: skip


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
    reach: int = 0, rescales: bool = True,
) -> Tensor:  # fmt: skip
    """Online, in blocks of keys; faults by their keywords."""
    y = torch.zeros_like(v, dtype=torch.float32)
    scale, block = q.shape[1] ** -0.5, 8
    for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
        if a == b:
            continue
        n = b - a
        top = torch.full((n, 1), -torch.inf)
        total, out = torch.zeros(n, 1), torch.zeros(n, v.shape[1])
        for s in range(a, min(b + reach, len(k)), block):
            e = min(s + block, b + reach, len(k))
            scores = q[a:b].float() @ k[s:e].float().T * scale
            later = torch.arange(s, e) - a > torch.arange(n)[:, None]
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


_CU = ks.offsets("S", of="T")

SUBJECTS = (
    Subject(
        kfuzz.reference(segment_softmax, {"x": ks.tensors("T"), "cu": _CU}),
        {"scattered": _softmax_scattered},
        {
            "one maximum for all": _softmax_of_all,
            "swallows NaN": _softmax_swallows_nan,
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
        },
        {
            "sees the next sequence": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, reach=1
            ),
            "never rescales": lambda q, k, v, cu, causal: _attend(
                q, k, v, cu, causal, rescales=False
            ),
        },
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
            "keeps the state in 16 bits": _scan_state_in_16_bits,
        },
        {"inplace": ("state",)},
    ),
)
