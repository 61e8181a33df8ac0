"""Functions of torch alone, each with one fault at the line that says so."""

import math

import torch

import kfuzz
from kfuzz.contracts import operators as ops

F32 = dict(dtypes="float32")


@kfuzz.kernel(ops.layer_norm, **F32)
def ln_unbiased(x, weight=None, bias=None, eps=1e-5):
    v = x.float()
    mean = v.mean(-1, keepdim=True)
    var = v.var(-1, keepdim=True)  # FAULT
    y = (v - mean) * torch.rsqrt(var + eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)


@kfuzz.kernel(ops.rms_norm, **F32)
def rms_eps_outside(x, weight, eps=1e-6):
    v = x.float()
    square = v.pow(2).mean(-1, keepdim=True)
    norm = torch.sqrt(square) + eps  # FAULT
    return (v / norm * weight).to(x.dtype)


@kfuzz.kernel(ops.gelu_tanh, **F32)
def gelu_digits(x):
    v = x.float()
    inner = math.sqrt(2 / math.pi) * (v + 0.044175 * v * v * v)  # FAULT
    return (0.5 * v * (1 + torch.tanh(inner))).to(x.dtype)


@kfuzz.kernel(ops.leaky_relu, **F32)
def leaky_sign(x, negative_slope=0.01):
    v = x.float()
    y = torch.where(v >= 0, v, -negative_slope * v)  # FAULT
    return y.to(x.dtype)


@kfuzz.kernel(ops.softmax, **F32)
def softmax_no_max(x, dim=-1):
    e = torch.exp(x.float())  # FAULT
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


@kfuzz.kernel(ops.l2_normalize, **F32)
def l2_no_root(x, dim=-1, eps=1e-12):
    v = x.double()
    norm = v.pow(2).sum(dim, keepdim=True)  # FAULT
    return (v / norm.clamp_min(eps)).to(x.dtype)


@kfuzz.kernel(ops.geglu, **F32)
def geglu_swapped(gate, up):
    g, u = gate.double(), up.double()
    y = torch.nn.functional.gelu(u) * g  # FAULT
    return y.to(gate.dtype)


@kfuzz.kernel(ops.logsumexp, **F32)
def lse_no_shift_back(x, dim=-1):
    v = x.double()
    top = v.amax(dim, keepdim=True)
    total = torch.exp(v - top).sum(dim)
    return torch.log(total).to(x.dtype)  # FAULT


@kfuzz.kernel(ops.mse_loss, **F32)
def mse_rows(x, target, reduction="mean"):
    d = (x - target).double() ** 2
    if reduction == "none":
        return d.to(x.dtype)
    total = d.sum()
    if reduction == "mean":
        total = total / x.shape[0]  # FAULT
    return total.to(x.dtype)


@kfuzz.kernel(ops.mean, **F32)
def mean_half(x, dim=-1):
    y = x.half().double().mean(dim)  # FAULT
    return y.to(x.dtype)


@kfuzz.kernel(ops.cumsum, **F32)
def cumsum_flipped(x, dim=-1):
    y = x.double().flip(dim).cumsum(dim)  # FAULT
    return y.to(x.dtype)


@kfuzz.kernel(ops.clamp, **F32)
def clamp_swapped(x, min=-1.0, max=1.0):
    y = torch.where(x < min, max, x)  # FAULT
    y = torch.where(y > max, max, y)
    return y.to(x.dtype)


def flushed(x):
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros_like(x), x)


@kfuzz.kernel(ops.relu, subnormals="preserve", **F32)
def relu_flushes(x):
    return torch.relu(flushed(x))  # FAULT


@kfuzz.kernel(ops.mul, **F32)
def mul_nan_to_num(a, b):
    y = torch.nan_to_num(a) * b  # FAULT
    return y


@kfuzz.kernel(ops.add, **F32)
def add_offset(a, b):
    y = a + b
    return y + 5e-3  # FAULT


@kfuzz.kernel(ops.sigmoid, **F32)
def sigmoid_in_bf16(x):
    v = x.to(torch.bfloat16)  # FAULT
    return torch.sigmoid(v.double()).to(x.dtype)


@kfuzz.kernel(ops.log, **F32)
def log_overwrites(x):
    x.clamp_(min=0)  # FAULT
    return torch.log(x)


@kfuzz.kernel(ops.amax, **F32)
def amax_zero(x, dim=-1):
    y = x.amax(dim)
    return torch.maximum(y, torch.zeros_like(y))  # FAULT
