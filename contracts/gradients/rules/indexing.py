"""Gradients of operators with indices, of the loss of a classifier, of rotations."""

from kfuzz import numerics as nm
from kfuzz.contracts.gradients.rules import Given, Gradients, both, rule
from kfuzz.contracts.gradients.rules.exact import grad, moved, scattered, whole
from kfuzz.contracts.operators.elementwise import tables, turned

SCATTERED = "gamma(c, u) sum|grad_y| over the c elements of grad_y that name a place"


def _rows(problem: "nm.Problem", name: str) -> "nm.Tensor":
    """Return indices of rows as those of their elements, [members, k, width]."""
    index = problem.tensors[name].flatten(1)
    return index.unsqueeze(-1).expand(-1, -1, grad(problem).shape[-1])


def _listed(problem: "nm.Problem") -> "nm.Tensor":
    g = grad(problem)
    members, width = g.shape[0], g.shape[-1]
    return g.reshape(members, g.numel() // max(members * width, 1) if width else
                     _count(problem), width)  # fmt: skip


def _count(problem: "nm.Problem") -> int:
    return int(problem.tensors["indices"][0].numel())


@rule(
    "embedding", "weight", dims="* D",
    exact={"weight": scattered("weight", lambda p: _rows(p, "indices"), 1, _listed)},
    bound=SCATTERED,
)  # fmt: skip
def _embedding(g: Given) -> Gradients:
    index, width = g["indices"].flatten(), g["weight"].shape[-1]
    start = g.grad.new_zeros(g["weight"].shape)
    return {"weight": start.index_add(0, index, g.grad.reshape(len(index), width))}


@rule(
    "index_select", "x", dims="K D",
    exact={"x": scattered("x", lambda p: _rows(p, "index"), 1, grad)}, bound=SCATTERED,
)  # fmt: skip
def _index_select(g: Given) -> Gradients:
    return {"x": g.grad.new_zeros(g["x"].shape).index_add(0, g["index"], g.grad)}


@rule(
    "gather", "x", dims="N K",
    exact={"x": scattered("x", lambda p: p.tensors["index"], -1, grad)},
    bound=SCATTERED,
)  # fmt: skip
def _gather(g: Given) -> Gradients:
    return {"x": g.grad.new_zeros(g["x"].shape).scatter_add(-1, g["index"], g.grad)}


@rule(
    "scatter_add", "x", "src", dims="N C",
    exact={
        "x": whole("y"),
        "src": moved(lambda p: grad(p).gather(-1, p.tensors["index"])),
    },
    bound="dx == grad_y, dsrc == grad_y[index]",
)  # fmt: skip
def _scatter_add(g: Given) -> Gradients:
    return {"x": g.grad, "src": g.grad.gather(-1, g["index"])}


@rule(
    "index_add", "x", "src", dims="V D", exact={"x": whole("y")},
    bound="dx == grad_y, dsrc as the shadow's of alpha grad_y[index]",
)  # fmt: skip
def _index_add(g: Given) -> Gradients:
    taken = g.grad.index_select(0, g["index"])
    return {"x": g.grad, "src": taken * float(g.scalars["alpha"])}


@rule(
    "cross_entropy", "logits", dims="",
    bound="as the shadow's of (p - t) grad_y / count, p from the logits or from stored "
    "log-probabilities",
    variants={
        "": ({"reduction": ("mean", "sum")}, ""),
        "_none": ({"reduction": ("none",)}, "N"),
    },
)  # fmt: skip
def _cross_entropy(g: Given) -> Gradients:
    import torch

    x, target = g["logits"], g["target"]
    smoothing = float(g.scalars["label_smoothing"])
    kept = target != int(g.scalars["ignore_index"])
    classes = x.shape[-1]
    share = torch.softmax(x, -1)
    at = torch.where(kept, target, 0).unsqueeze(-1)
    wanted = x.new_zeros(x.shape).scatter(-1, at, 1.0)
    if smoothing:
        wanted = wanted * (1 - smoothing) + smoothing / max(classes, 1)
    spread = g.grad.unsqueeze(-1)
    if g.scalars["reduction"] == "none":
        made = (share - wanted) * spread
    else:
        weight = g.grad
        if g.scalars["reduction"] == "mean":
            count = kept.sum()
            weight = g.grad / count
            # The mean of no row is NaN: nothing is said of its gradient.
            kept = kept | (count == 0)
        # The gradient of the loss of a row, then that of the mean; or the other way.
        made = both((share - wanted) * weight, share * weight - wanted * weight)
    return {"logits": made.where(kept.unsqueeze(-1), x.new_zeros(()))}


@rule(
    "rope", "x", "cos", "sin", dims="B S H D", bound="as the shadow's of the turn back"
)
def _rope(g: Given) -> Gradients:
    x, grad_y = g["x"], g.grad
    interleaved, repeats = bool(g.scalars["interleaved"]), int(g.scalars["repeats"])
    c, s = tables(g["cos"], g["sin"], interleaved=interleaved, repeats=repeats)

    def folded(t: "nm.Tensor") -> "nm.Tensor":
        """Return the sum over batch and heads, then over the columns of one angle."""
        # As one sum: an implementation may take the terms in any order.
        table = g["cos"].shape[-1]
        if interleaved:
            parts = t.reshape(*t.shape[:-1], table, repeats).sum((0, 2, 4))
        else:
            parts = t.reshape(*t.shape[:-1], repeats, table).sum((0, 2, 3))
        return parts

    return {
        "x": grad_y * c - turned(grad_y * s, interleaved=interleaved),
        "cos": folded(grad_y * x),
        "sin": folded(grad_y * turned(x, interleaved=interleaved)),
    }
