"""In what arithmetic a kernel takes the steps of a reference, as declared."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import Accumulation, growth
from kfuzz.numerics.formats import FORMATS, Format, round_to

AS_REFERENCE = "as_reference"
"""The algorithm of a kernel that takes the very steps of its oracle."""


@dataclass(frozen=True)
class Steps:
    """The arithmetic of each step.

    Attributes:
        compute: format in which a step is evaluated.
        stored: format to which the result of each step is rounded besides; None
            where intermediate results stay in `compute`.
        data: format of the arguments.
        acc: how long sums are kept.
        flush: whether subnormal operands and results may be taken for 0.
        fast: whether fast approximations of elementary functions are used.
        own: whether the steps are the reference's own and no other form's.
        tf32: kinds of products ("matmul", "convolution") that may take TF32 operands
            though nothing is declared.
        kinks: whether any value between the one-sided ones is right at a kink: a
            difference that is exactly 0 then has an error, and so either sign; what is
            chosen of equal numbers is open.
    """

    compute: Format
    stored: Format | None
    data: Format
    acc: Accumulation
    flush: bool
    fast: bool = False
    own: bool = False
    tf32: frozenset[str] = frozenset()
    kinks: bool = False

    @classmethod
    def declared(
        cls,
        problem: Problem,
        *,
        tf32: frozenset[str] = frozenset(),
        kinks: bool = False,
    ) -> "Steps":
        """Return the arithmetic that a problem's declaration names.

        Args:
            problem: inputs and declaration.
            tf32: as the attribute, like kinks.
            kinks: as the attribute.
        """
        claims: Declaration = problem.declaration
        compute = FORMATS["float32"]
        if claims.accumulator in ("float64", "float16", "bfloat16"):
            compute = FORMATS[claims.accumulator]
        out = problem.output
        coarse = claims.intermediates == "output" and out.unit > compute.unit
        return cls(
            compute=compute,
            stored=out if coarse else None,
            data=problem.format,
            acc=problem.accumulation,
            flush=problem.flushes,
            fast=claims.approx,
            own=claims.algorithm == AS_REFERENCE,
            tf32=tf32,
            kinks=kinks,
        )

    def multiplying(self, kind: str) -> "Steps":
        """Return the arithmetic of products of a kind."""
        if kind not in self.tf32:
            return self
        return replace(self, acc=replace(self.acc, tf32=True))

    @property
    def unit(self) -> float:
        """Unit roundoff of a step, that of the float64 reference included."""
        return self.compute.unit + FORMATS["float64"].unit

    @property
    def coarsest(self) -> float:
        """Unit roundoff of a step whose result is stored, where such are."""
        return self.unit + (0.0 if self.stored is None else self.stored.unit)

    @property
    def held(self) -> Format:
        """The coarsest format that a number passes: constants are rounded to it."""
        return self.compute if self.stored is None else self.stored

    @property
    def limit(self) -> float:
        """The greatest number that an intermediate result can be."""
        top = self.compute.max_finite
        return top if self.stored is None else min(top, self.stored.max_finite)

    def lost(self, fmt: Format, halves: float = 1.0) -> float:
        """Return what one result may lose to underflow in a format."""
        if self.flush:
            return fmt.min_normal
        return max(halves, 1.0) * fmt.min_subnormal / 2

    def rounded(
        self,
        out: Tensor,
        error: Tensor,
        halves: float = 1.0,
        *,
        absolute: Tensor | float = 0.0,
    ) -> Tensor:
        """Return the error of a step's result, its own roundings added.

        A step that computes f of operands in error gives v with
        |v - f| <= k u |f|, and |f| <= |out| + error.

        Args:
            out: float64, the exact result of exact operands.
            error: what the operands' errors make of it.
            halves: k, half units in the last place.
            absolute: further absolute error.
        """
        local = growth_of(halves, self.unit)
        made = error + local * (out.abs() + error) + absolute
        made = made + self.lost(self.compute, halves)
        return self.kept(out, made)

    def exact(self, error: Tensor, where: Tensor) -> Tensor:
        """Return the error with 0 where a result is one and the same in any format.

        Such are a difference of equal numbers and a product with 0: neither rounds, and
        no underflow makes another number of 0.

        Args:
            error: of a result.
            where: where it is so.
        """
        return error if self.kinks else torch.where(where, 0.0, error)

    def kept(self, out: Tensor, error: Tensor) -> Tensor:
        """Return the error after rounding to the stored format, if there is one."""
        if self.stored is None:
            return error
        error = error + self.stored.unit * (out.abs() + error)
        return error + self.lost(self.stored)

    def given(self, x: Tensor) -> Tensor:
        """Return the error with which a number of the reference is held.

        0 for a number of the format; infinities and NaN are held exactly. Where
        subnormals may be read as zero they are as good as lost.
        """
        finite = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
        error = (finite - round_to(finite, self.held)).abs()
        beyond = ~torch.isfinite(error)
        error = torch.where(beyond, torch.zeros_like(error), error)
        if self.flush:
            lost = finite.abs() < self.compute.min_normal
            error = torch.where(lost, finite.abs(), error)
        return error


def growth_of(halves: float, unit: float) -> float:
    """Return k u / (1 - k u) for any number of half units k."""
    whole = int(halves)
    part = (halves - whole) * unit
    return growth(whole, unit) + part
