# ruff: noqa: E501 -- lines of candidates
"""References, each with two spellings that give the same bits."""

from dataclasses import dataclass
from textwrap import indent
from typing import Final


@dataclass(frozen=True)
class Problem:
    """A reference and how candidates are right about it.

    Attributes:
        name: its name.
        inputs: what `get_inputs` returns.
        right: the result, of the arguments.
        alike: the same bits, spelt otherwise.
        arguments: names of the arguments.
        init: names of the constructor's arguments.
        init_values: what `get_init_inputs` returns.
        build: statements of the constructor.
    """

    name: str
    inputs: str
    right: str
    alike: str
    arguments: str = "x"
    init: str = ""
    init_values: str = "[]"
    build: str = "pass"

    @property
    def reference(self) -> str:
        """The file of the reference."""
        return f"""
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self{"".join(", " + n for n in self.init.split())}):
        super().__init__()
        {self.build}

    def forward(self, {self.arguments}):
        return {self.right}


def get_inputs():
    return {self.inputs}


def get_init_inputs():
    return {self.init_values}
"""

    def candidate(
        self, body: str, *, setup: str = "", top: str = "", right: str = ""
    ) -> str:
        """Return the file of a candidate.

        Args:
            body: of `forward`, where `right` and `alike` are methods.
            setup: further statements of the constructor.
            top: statements of the module.
            right: the result, if not that of the problem.
        """
        return f"""
import ctypes, gc, hashlib, os, random, struct, sys, threading, time, uuid, warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

{top}


def off(y, kind, size):
    # Wrong in one of several ways, by far more than rounding.
    z = y.clone()
    flat = z.view(-1)
    if not flat.numel():
        return z
    if kind == 0:
        return z * (1 + size)
    if kind == 1:
        flat[-1] = flat[-1] + size * (1 + flat[-1].abs())
        return z
    if kind == 2:
        flat[: flat.numel() // 2 + 1] += size * (1 + flat.abs().max().nan_to_num(0, 0, 0))
        return z
    if kind == 3:
        return torch.zeros_like(z) - size
    return z + size * (1 + z.abs())


class ModelNew(nn.Module):
    def __init__(self{"".join(", " + n for n in self.init.split())}):
        super().__init__()
        {self.build}
        self.calls = 0
{indent(setup, " " * 8)}

    def right(self, {self.arguments}):
        return {right or self.right}

    def alike(self, {self.arguments}):
        return {self.alike}

    def forward(self, {self.arguments}):
        self.calls += 1
        first = {self.arguments.partition(",")[0]}
{indent(body, " " * 8)}
"""


PROBLEMS: Final = (
    Problem(
        "relu", "[torch.randn(16, 32)]", "torch.relu(x)", "torch.clamp_min(x, 0.0)"
    ),
    Problem(
        "linear", "[torch.randn(12, 24)]", "torch.relu(self.linear(x))",
        "self.linear(x.clone()).relu()", init="k n", init_values="[24, 20]",
        build="self.linear = nn.Linear(k, n)",
    ),
    Problem(
        "softmax", "[torch.randn(12, 40)]", "torch.softmax(x, dim=-1)",
        "F.softmax(x.clone(), dim=-1)",
    ),
    Problem(
        "matmul", "[torch.randn(20, 24), torch.randn(24, 12)]", "A @ B",
        "torch.matmul(A.clone(), B)", arguments="A, B",
    ),
    Problem(
        "gelu", "[torch.randn(8, 60)]", "F.gelu(x)", "F.gelu(x.clone()).view_as(x)"
    ),
    Problem(
        "row_mean", "[torch.randn(24, 30)]", "x.mean(dim=1)",
        "torch.mean(x.clone(), dim=1)",
    ),
)  # fmt: skip
