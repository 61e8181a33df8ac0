"""KL divergence: 0 times infinity where a target of 0 meets a log-probability of -inf.

Thread: google-deepmind/optax#1786 (2026-09), its first case of two. Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def divergence(logp, target):
    """The sum of target (log target - logp) along a row; nothing where target is 0."""
    none = target == 0
    one = torch.ones_like(target)
    safe = torch.where(none, torch.zeros_like(logp), logp)
    terms = target * (torch.where(none, one, target).log() - safe)
    return terms.sum(-1)


operator = kfuzz.reference(
    divergence,
    inputs=dict(
        logp=ks.tensors("M N", within="[-inf, 0]"),
        target=ks.tensors("M N", within=(0, 1)),
    ),
    results={"y": "float32"},
    shape_class="M >= 1 and N >= 1",
)


@triton.jit
def _diverge(p, t, y, p0, p1, t0, t1, N, BLOCK: tl.constexpr, GUARD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        real = i < N
        logp = tl.load(p + row * p0 + i * p1, mask=real, other=0.0).to(tl.float32)
        target = tl.load(t + row * t0 + i * t1, mask=real, other=0.0).to(tl.float32)
        log_target = tl.where(target == 0.0, 0.0, tl.log(target))
        term = target * (log_target - logp)
        if GUARD:
            term = tl.where(target == 0.0, 0.0, term)
        total += tl.sum(term, 0)
    tl.store(y + row, total)


def _run(logp, target, guard):
    m, n = logp.shape
    y = torch.empty(m, dtype=torch.float32, device=logp.device)
    _diverge[(m,)](
        logp, target, y, *logp.stride(), *target.stride(), n, BLOCK=32, GUARD=guard
    )
    return y


@kfuzz.kernel(operator)
def faulty(logp, target):
    return _run(logp, target, False)


@kfuzz.kernel(operator)
def fixed(logp, target):
    return _run(logp, target, True)
