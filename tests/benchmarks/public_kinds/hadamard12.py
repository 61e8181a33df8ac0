"""Hadamard transform of 12 x 2^k columns: the table of order 12 is not orthogonal.

Thread: Dao-AILab/fast-hadamard-transform#9 (2024-08, open). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks

SQUARES = {
    pow(i, 2, 11) for i in range(1, 11)
}  # quadratic residues: Paley's construction


def _paley():
    """Order 12: first row and column of ones, then the residues' circulant minus 1."""
    h = torch.ones(12, 12, dtype=torch.float64)
    for i in range(11):
        for j in range(11):
            h[i + 1, j + 1] = 1.0 if (j - i) % 11 in SQUARES else -1.0
    return h


def transformed(x):
    """x times (H12 (x) H_J): x [M, 12, J], over both of its last dimensions."""
    h = _paley().to(x)
    j = x.shape[-1]
    s = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    while s.shape[0] < j:
        s = torch.cat((torch.cat((s, s), 1), torch.cat((s, -s), 1)), 0)
    return (h @ x) @ s


operator = kfuzz.reference(
    transformed,
    inputs=dict(x=ks.tensors("M I J")),
    shape_class="M >= 1 and I == 12 and (J == 1 or J == 2 or J == 4 or J == 8)",
)


@triton.jit
def _mix(x, table, y, s0, s1, s2, J, BLOCK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, 16).to(tl.int64)
    for col in range(J):
        acc = tl.zeros([16], tl.float32)
        for a in range(12):
            for b in range(J):
                v = tl.load(x + m * s0 + (m * 0 + a) * s1 + (m * 0 + b) * s2).to(
                    tl.float32
                )
                bits = col & b
                sign = 1.0
                for _ in range(4):
                    sign = tl.where((bits & 1) == 1, -sign, sign)
                    bits = bits >> 1
                acc += v * sign * tl.load(table + i * 12 + a, mask=i < 12, other=0.0)
        tl.store(y + (m * 12 + i) * J + col, acc.to(y.dtype.element_ty), mask=i < 12)


def _run(x, table):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _mix[(x.shape[0],)](
        x, table.float().contiguous(), y, *x.stride(), x.shape[2], BLOCK=16
    )
    return y


def _slipped():
    h = _paley()
    h[5, 1:] = h[5, 1:].roll(1)  # one row of the circulant one place late
    return h


@kfuzz.kernel(operator)
def faulty(x):
    return _run(x, _slipped())


@kfuzz.kernel(operator)
def fixed(x):
    return _run(x, _paley())
