"""Bounds of gradients that are sums of products, sums or moves of what was given.

Each is a function of the gradient's problem: the arguments of the forward operator,
and `grad_…` for each output.
"""

from dataclasses import replace

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import PREFIX, Exact, Taken


def whole(output: str) -> Exact:
    """Return the bound of an output's gradient itself: nothing rounds."""

    def bound(problem: "nm.Problem") -> "nm.Acceptance":

        return nm.around(problem, problem.tensors[PREFIX + output], 0.0)

    return bound


def moved(taken: Taken) -> Exact:
    """Return the bound of elements that are only moved."""

    def bound(problem: "nm.Problem") -> "nm.Acceptance":

        return nm.around(problem, taken(problem), 0.0)

    return bound


def factor(name: str) -> Exact:
    """Return the bound of the product of the gradient with an argument."""

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        from kfuzz.contracts.operators.elementwise import accept_mul

        pair = {"a": problem.tensors[PREFIX + "y"], "b": problem.tensors[name]}
        return accept_mul(replace(problem, tensors=pair, scalars={}))

    return bound


def products(left: Taken, right: Taken, shape: Taken | None = None) -> Exact:
    """Return the bound of a matrix product.

    Args:
        left: [members, …, rows, inner].
        right: [members, …, inner, columns].
        shape: of whose shape the result is.
    """

    def bound(problem: "nm.Problem") -> "nm.Acceptance":

        made = nm.dots(problem, left(problem), right(problem))
        if shape is not None:
            made = made.reshaped(*shape(problem).shape)
        return made.accepted(problem)

    return bound


def summed(taken: Taken, dim: int) -> Exact:
    """Return the bound of a sum along a dimension, in any order."""

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        from kfuzz.contracts.operators.reductions import accept_sum

        parts = replace(problem, tensors={"x": taken(problem)}, scalars={"dim": dim})
        return accept_sum(parts)

    return bound


def prefixes(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the bound of a cumulative sum's gradient: the sums of all suffixes."""
    from kfuzz.contracts.operators.reductions import accept_cumsum

    dim = problem.axis()
    turned = problem.tensors[PREFIX + "y"].flip(dim)
    made = accept_cumsum(replace(problem, tensors={"x": turned}))
    assert isinstance(made, nm.Acceptance)
    return made.mapped(lambda x: x.flip(dim))


def scattered(to: str, index: Taken, dim: int, source: Taken) -> Exact:
    """Return the bound of sums of the rows or elements that name a place.

    Args:
        to: the argument whose gradient it is.
        index: int64, of the sources' shape.
        dim: the dimension along which indices select.
        source: what is added.
    """

    def bound(problem: "nm.Problem") -> "nm.Acceptance":
        import torch

        start = torch.zeros_like(problem.tensors[to])
        return nm.scattered_sums(
            problem, start, index(problem), source(problem), dim=dim
        )

    return bound


def grad(problem: "nm.Problem") -> "nm.Tensor":
    """Return the gradient of the output y."""
    return problem.tensors[PREFIX + "y"]
