"""How the gradients of an operator are judged, as its row says it.

Most are derived: autograd's steps through the operator's oracle, or through a form of
it that takes the steps of kernels, run under the running-error shadow, which gives
the vector-Jacobian product and its bound at once. Where kernels take steps that
autograd does not, a formula spells them out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz import numerics as nm

Exact = Callable[["nm.Problem"], "nm.Acceptance"]
Relation = Callable[["nm.Problem", "nm.Tensors"], "nm.Tensors"]
Gradients = dict[str, "nm.Tensor"]

PREFIX: Final = "grad_"
# The keyword by which a formula gets the dtype in which results are stored.
STORED: Final = "stored"
# Every result of the forward and of the backward pass, see `Rule.stored`.
EVERY: Final = "*"


@dataclass(frozen=True)
class Given:
    """One member's problem, as a formula sees it.

    Attributes:
        tensors: float64 arguments of the forward operator, by name; an optional one
            that the implementation does without is absent.
        grads: float64 gradients of the outputs, by output.
        scalars: the scalar arguments; `dim` is negative.
        stored: the dtype in which results are stored; None where nothing is rounded.
    """

    tensors: "nm.Tensors"
    grads: "nm.Tensors"
    scalars: Mapping[str, Any]
    stored: Any = None

    def __getitem__(self, name: str) -> "nm.Tensor":
        """Return an argument of the forward operator."""
        return self.tensors[name]

    @property
    def grad(self) -> "nm.Tensor":
        """The gradient of the only output."""
        return next(iter(self.grads.values()))

    def saved(self, y: "nm.Tensor") -> "nm.Tensor":
        """Return a forward result as a kernel may have kept it: rounded, or not."""
        return y if self.stored is None else y.to(self.stored)


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated.

    Attributes:
        inputs: the arguments in which it is differentiable.
        outputs: dimension names of its differentiable outputs.
        formula: returns the gradient with respect to each of `inputs` that the
            implementation takes; None where the gradients are derived.
        forms: forms of the oracle whose derivatives take the steps of kernels; what
            lies between those of two is right. None for the oracle itself.
        linear: whether the operator is linear in each argument: its gradients are
            sums of products in one form, and no safety covers others.
        stored: the results that a kernel may have kept rounded to the output's format,
            as torch's names of the operators that give them, or `EVERY`.
        lacks: the parameter that selects the axis which the output lacks.
        exact: by argument a bound that needs no shadow.
        accept: a relation between the gradients, see `kfuzz.contracts.oracle`.
        variants: by suffix the values to which scalars are limited, where the shape of
            the output depends on them, with the dimension names.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    formula: Callable[[Given], Gradients] | None = None
    forms: tuple[Callable[..., Any], ...] = ()
    linear: bool = False
    stored: str = ""
    lacks: str = ""
    exact: Mapping[str, "Exact"] = field(default_factory=dict)
    accept: "Relation | None" = None
    variants: Mapping[str, tuple[Mapping[str, tuple[Any, ...]], str]] = field(
        default_factory=dict
    )


def differentiable(
    inputs: str, dims: str | Mapping[str, str] = "*", **more: Any
) -> Rule:
    """Return the rule of an operator.

    Args:
        inputs: the arguments in which it is differentiable, separated by spaces.
        dims: dimension names of its output, or of each.
        more: other fields of the rule.
    """
    outputs = {"y": dims} if isinstance(dims, str) else dict(dims)
    return Rule(tuple(inputs.split()), outputs, **more)


def grad(problem: "nm.Problem") -> "nm.Tensor":
    """Return the gradient of the output y."""
    return problem.tensors[PREFIX + "y"]


def kinked(below: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return x above 0 and a function of it below, with either slope at 0."""
    return (
        lambda x, **scalars: x.where(x > 0, below(x, **scalars)),
        lambda x, **scalars: x.where(x >= 0, below(x, **scalars)),
    )


def both(one: "nm.Tensor", other: "nm.Tensor") -> "nm.Tensor":
    """Return a number that kernels form in either of two ways.

    They are equal; under the shadow half of the greater error remains, of which the
    shadow's safety makes twice that error.
    """
    return (one + other) / 2
