"""What a rule of differentiation is, and what it is given.

A rule spells out the vector-Jacobian product of one operator in the steps that kernels
take; run under the running-error shadow it gives the product and its bound at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz import numerics as nm

Exact = Callable[["nm.Problem"], "nm.Acceptance"]
Taken = Callable[["nm.Problem"], "nm.Tensor"]
Relation = Callable[["nm.Problem", "nm.Tensors"], "nm.Tensors"]

PREFIX: Final = "grad_"


@dataclass(frozen=True)
class Given:
    """One member's problem, as a rule sees it.

    Attributes:
        tensors: float64 arguments of the forward operator, by name; an optional one
            that the implementation does without is absent.
        grads: float64 gradients of the outputs, by output.
        scalars: the scalar arguments; `dim` is negative.
        stored: the dtype in which results are stored; None where nothing is rounded.
        data: unit roundoff of the data's format; 0 where nothing is rounded.
    """

    tensors: "nm.Tensors"
    grads: "nm.Tensors"
    scalars: Mapping[str, Any]
    stored: Any = None
    data: float = 0.0

    def __getitem__(self, name: str) -> "nm.Tensor":
        """Return an argument of the forward operator."""
        return self.tensors[name]

    @property
    def grad(self) -> "nm.Tensor":
        """The gradient of the only output."""
        return next(iter(self.grads.values()))

    @property
    def dim(self) -> int:
        """The dimension that the operator works along."""
        return int(self.scalars["dim"])

    def saved(self, y: "nm.Tensor") -> "nm.Tensor":
        """Return a forward result as a kernel may have kept it: rounded, or not."""
        return y if self.stored is None else y.to(self.stored)


@dataclass(frozen=True)
class Either:
    """A gradient where the operator has no derivative: any between two.

    Attributes:
        value: one of them, shown as the expected one.
        one: one end.
        other: the other end.
    """

    value: "nm.Tensor"
    one: "nm.Tensor"
    other: "nm.Tensor"


Gradients = dict[str, "nm.Tensor | Either"]


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated.

    Attributes:
        formula: returns the gradient with respect to each of `inputs` that the
            implementation takes.
        inputs: the arguments in which it is differentiable.
        outputs: dimension names of its differentiable outputs.
        lacks: the parameter that selects the axis which the output lacks.
        exact: by argument a bound that needs no shadow: of sums, products and moves.
        accept: a relation between the gradients, see `kfuzz.contracts.oracle`.
        variants: by suffix the values to which scalars are limited, where the shape of
            the output depends on them, with the dimension names.
    """

    formula: Callable[[Given], Gradients]
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    lacks: str = ""
    exact: Mapping[str, "Exact"] = field(default_factory=dict)
    accept: "Relation | None" = None
    variants: Mapping[str, tuple[Mapping[str, tuple[Any, ...]], str]] = field(
        default_factory=dict
    )


RULES: Final[dict[str, Rule]] = {}
"""The rules by operator."""


def rule(
    name: str, *inputs: str, dims: str | Mapping[str, str] = "*", **more: Any
) -> Callable[[Callable[[Given], Gradients]], Callable[[Given], Gradients]]:
    """Register the rule of an operator; arguments as of `Rule`."""
    outputs = {"y": dims} if isinstance(dims, str) else dict(dims)

    def register(
        formula: Callable[[Given], Gradients],
    ) -> Callable[[Given], Gradients]:
        RULES[name] = Rule(formula, inputs, outputs, **more)
        return formula

    return register


def both(one: "nm.Tensor", other: "nm.Tensor") -> "nm.Tensor":
    """Return a number that kernels form in either of two ways.

    They are equal; under the shadow half of the greater error remains, of which the
    shadow's safety makes twice that error.
    """
    return (one + other) / 2


def product(a: "nm.Tensor", b: "nm.Tensor", c: "nm.Tensor") -> "nm.Tensor":
    """Return a b c, whichever two factors meet first: each may leave the range."""
    return ((a * b) * c + (a * c) * b + (b * c) * a) / 3
