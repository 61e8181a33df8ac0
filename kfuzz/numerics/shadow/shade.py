"""What the shadow knows of a tensor, and of one call of an operator."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from kfuzz.core.declaration import AS_REFERENCE as AS_REFERENCE
from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import Accumulation, finite_or_zero, growth, zero
from kfuzz.numerics.formats import FORMATS, Format, round_to

# In what arithmetic a kernel takes the steps of a reference, as declared.


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
        form: whether no safety covers that exp(x) may be had as exp2(x log2 e).
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
    form: bool = False

    @classmethod
    def declared(
        cls,
        problem: Problem,
        *,
        tf32: frozenset[str] = frozenset(),
        kinks: bool = False,
        form: bool = False,
    ) -> "Steps":
        """Return the arithmetic that a problem's declaration names.

        Args:
            problem: inputs and declaration.
            tf32: as the attribute, like kinks and form.
            kinks: as the attribute.
            form: as the attribute.
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
            form=form,
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
        made = (out.abs() + error).mul_(local).add_(error)
        lost = self.lost(self.compute, halves)
        if isinstance(absolute, Tensor):
            made, absolute = made + absolute, 0.0
        return self.kept(out, made.add_(absolute + lost))

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
        finite = finite_or_zero(x)
        if self.held.dtype is torch.float32:
            rounded = finite.to(torch.float32).to(torch.float64)
        else:
            rounded = round_to(finite, self.held)
        error = torch.nan_to_num((finite - rounded).abs_(), posinf=0.0)
        if self.flush:
            lost = finite.abs() < self.compute.min_normal
            error = torch.where(lost, finite.abs(), error)
        return error


def growth_of(halves: float, unit: float) -> float:
    """Return k u / (1 - k u) for any number of half units k."""
    whole = int(halves)
    part = (halves - whole) * unit
    return growth(whole, unit) + part


class NoRule(Exception):
    """An operator, or a use of one, for which there is no error rule."""


@dataclass(frozen=True)
class Shade:
    """The bound on a kernel's error in every element of a tensor.

    Attributes:
        error: float64, of the tensor's shape. For truth values 1 where a kernel
            may hold the other one; infinite where nothing is known.
        limited: float64, 1 where some order or intermediate result may leave the
            range that the exact value keeps, else 0: a float, so that what moves
            elements moves it too.
        nonnegative: whether no kernel can hold a number below 0: squares are.
        given: whether the elements are the kernel's own arguments.
        filled: whether zeros that stand for nothing may be among them: those of a
            triangle, of padding, of a mask.
        reach: float64, of products and quotients: the greatest magnitude that a product
            of some of their factors can have, which another order forms on the way.
            None where that is the elements' own, or 1.
        terms: of how many terms the elements are sums; what is added to a sum may
            be one more term of it, at any place.
        fresh: whether nothing else has the memory of the error.
    """

    error: Tensor
    limited: Tensor
    nonnegative: bool = False
    given: bool = False
    terms: int = 0
    filled: bool = False
    reach: Tensor | None = None
    fresh: bool = False


class Extent(NamedTuple):
    """What the numbers of a tensor are at most, where that is asked once for all.

    Attributes:
        least: the least magnitude, 0 where one is 0.
        top: the greatest magnitude; infinite where an element or its error is no number
            or elements are range-limited.
        error: the greatest error.
    """

    least: float
    top: float
    error: float


WILD: Final = Extent(0.0, math.inf, math.inf)
"""Nothing is known but element by element."""


@dataclass(frozen=True)
class Operand:
    """One operand of a call, as float64."""

    value: Tensor
    shade: Shade
    number: float | None = None

    @cached_property
    def extent(self) -> Extent:
        """What is known of all its elements; not asked of a device, which would wait.

        One look at the elements saves each rule a dozen passes over them.
        """
        value, shade = self.value, self.shade
        if value.device.type != "cpu" or not value.numel():
            return WILD
        least, top = torch.aminmax(value.abs())
        made = Extent(float(least), float(top), float(shade.error.max()))
        limited = bool(shade.limited.max() > 0)
        return WILD if limited or not math.isfinite(made.top + made.error) else made

    @property
    def is_small(self) -> bool:
        """Whether no product of its factors is known to be above 1."""
        return self.extent.top <= 1 and self.shade.reach is None

    @property
    def error(self) -> Tensor:
        """The bound on its error."""
        return self.shade.error

    @cached_property
    def reach(self) -> Tensor:
        """The greatest magnitude of a product of some of its factors, at least 1."""
        if self.shade.reach is not None:
            return self.shade.reach
        return self.value.nan_to_num(0.0, 0.0, 0.0).abs_().clamp_(min=1)

    @property
    def is_power_of_two(self) -> bool:
        """Whether multiplying by it is exact."""
        if self.number is None or not self.number:
            return False
        return abs(torch.frexp(self.value).mantissa.item()) == 0.5

    def left_out(self, steps: Steps) -> Tensor:
        """Return where it is a 0 whose products a kernel may leave out.

        Those that mask something; not a 0 among the kernel's own arguments.
        """
        if self.number is not None or (self.shade.given and not self.shade.filled):
            return torch.zeros_like(self.value, dtype=torch.bool)
        # What a step loses to underflow is counted of an exact 0 too.
        lost = steps.lost(steps.compute)
        lost += 0.0 if steps.stored is None else steps.lost(steps.stored)
        return (self.value == 0) & (self.error <= 8 * lost)

    def read(self, steps: Steps) -> Tensor:
        """Return where it is range-limited for arithmetic: 1, else 0."""
        if self.extent.top + self.extent.error <= steps.limit:
            return zero(self.value).expand(self.value.shape)
        size = self.value.abs()
        beyond = (size + self.error > steps.limit) & (size < math.inf)
        return torch.maximum(self.shade.limited, beyond.to(torch.float64))


@dataclass
class Call:
    """One call of an operator.

    Attributes:
        steps: the arithmetic.
        name: "aten.add".
        named: arguments by their names in the schema, defaults included.
        run: calls it.
        shade_of: gives the shade of a tensor.
        again: calls it with other arguments by name.
        narrow: the narrower format to which it is asked to cast, if any.
    """

    steps: Steps
    name: str
    named: dict[str, Any]
    run: Callable[[], Any]
    shade_of: Callable[[Tensor], Shade]
    again: Callable[[dict[str, Any]], Any]
    narrow: Format | None = None
    _operands: dict[str, Operand] = field(default_factory=dict)

    @cached_property
    def out(self) -> Any:
        """What the operator gives in float64."""
        return self.run()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or the default where the schema has no such one."""
        return self.named.get(name, default)

    def operand(self, name: str) -> Operand:
        """Return a tensor or number as an operand."""
        if name not in self._operands:
            self._operands[name] = self.operand_of(self.named[name])
        return self._operands[name]

    def operand_of(self, given: Any) -> Operand:
        """Return any tensor or number as an operand."""
        if isinstance(given, Tensor):
            shade = self.shade_of(given)
            value = given.to(torch.float64)
            if given.dtype is torch.bool:
                shade = replace(shade, filled=True)
            elif not given.is_floating_point():  # as a number it is rounded
                shade = replace(shade, error=shade.error + self.steps.given(value))
            return Operand(value, shade)
        if not isinstance(given, int | float):
            raise NoRule(self.name)
        value = torch.tensor(float(given), dtype=torch.float64)
        error = self.steps.given(value)
        shade = Shade(error, torch.zeros_like(error), nonnegative=given >= 0)
        return Operand(value, shade, number=float(given))


@dataclass(frozen=True)
class Widened:
    """What a composite gives where kernels take other steps than it spells out.

    Attributes:
        value: the result.
        units: absolute error of the other forms, in unit roundoffs.
        lost: the same, in what one result may lose to underflow.
        reach: the greatest magnitude of their intermediate results.
    """

    value: Tensor
    units: Tensor
    lost: Tensor
    reach: Tensor


Outcome = tuple[Any, tuple[Shade | None, ...]]
Rule = Callable[[Call], Outcome]

RULES: Final[dict[str, Rule]] = {}
"""Error rules by operator: each gives the results and a shade for each of them."""

COMPOSITES: Final[dict[str, Callable[..., Any] | None]] = {}
"""Operators that are chains of others, as functions that run under the shadow; None
where the chain is torch's own decomposition."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for aten operators."""

    def register(function: Rule) -> Rule:
        RULES.update({f"aten.{n}": function for n in names})
        return function

    return register


def composite(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a chain of other operators for aten operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPOSITES.update({f"aten.{n}": function for n in names})
        return function

    return register


def any_of(*limited: Tensor) -> Tensor:
    """Return the element-by-element union of range-limited places, broadcast."""
    made = none = zero(limited[0])  # what stands for no place
    for other in limited:
        if other.data_ptr() != none.data_ptr():
            made = other if made is none else torch.maximum(made, other)
    return made


def sound(error: Tensor) -> Tensor:
    """Return the error with NaN, of which nothing follows, taken for infinite."""
    return torch.nan_to_num(error, nan=float("inf"), posinf=float("inf"))
