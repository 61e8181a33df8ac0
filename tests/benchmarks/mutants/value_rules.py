"""Rules about what a kernel computes: accumulators, formulas, formats."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.mutants.rules import (
    GPU,
    Book,
    Edit,
    Site,
    binary,
    cast,
    is_call,
    is_number,
    kernel_call,
    keyword,
    names,
    owner,
)

accumulators: Final = Book("accumulators")
formats: Final = Book("formats")
steps: Final = Book("missing steps")
formulas: Final = Book("formulas")
constants: Final = Book("constants")
fast: Final = Book("fast arithmetic")
BOOKS: Final = (accumulators, formats, steps, formulas, constants, fast)
# Integers over which means and variances are taken.
_COUNTS: Final = frozenset({"n", "c", "free"})
_NARROW: Final = ("tl.float16", "tl.bfloat16")
_OPPOSITES: Final = {
    "tl.max": "tl.min", "tl.min": "tl.max",
    "tl.maximum": "tl.minimum", "tl.minimum": "tl.maximum",
}  # fmt: skip


def _narrowed(kind: str) -> str:
    return f".to({kind}).to(tl.float32)"


def _sum(site: Site) -> tuple[ast.stmt, str, str, str] | None:
    """Return a statement in a loop that adds to what it had.

    Returns:
        The statement, the name, what it was made to be before, and what is added.
    """
    if not site.kernel or not site.in_loop or site.is_place:
        return None
    match site.node:
        case ast.AugAssign(target=ast.Name(name), op=ast.Add(), value=value) as node:
            return node, name, name, site.of(value)
        case ast.Assign(targets=[ast.Name(name)], value=value) as node:
            whole = owner(value) if is_call(value, ".to") else value
            match whole:
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    if name in names(left):
                        return node, name, site.of(left), site.of(right)
    return None


def _dot(site: Site) -> ast.Call | None:
    """Return a product in a loop that is added to an accumulator."""
    node = kernel_call(site, "tl.dot")
    return node if node and site.in_loop and len(node.args) == 3 else None


@accumulators.rule("accumulator-overwritten", "a tile replaces what was accumulated")
def _overwritten(site: Site) -> Iterator[Edit]:
    if found := _sum(site):
        yield ((found[0], f"{found[1]} = {found[3]}"),)
    elif node := _dot(site):
        kept = [site.of(a) for a in (*node.args[:2], *node.keywords)]
        yield ((node, f"tl.dot({', '.join(kept)})"),)
    elif site.in_loop and (node := kernel_call(site, "tl.maximum", "tl.minimum")):
        yield ((node, site.within(node.args[1])),)


@accumulators.rule("narrowed-between-tiles", "an accumulator has 16 bits between tiles")
def _between(site: Site) -> Iterator[Edit]:
    for kind in _NARROW:
        if found := _sum(site):
            text = f"{found[1]} = ({found[2]} + {found[3]}){_narrowed(kind)}"
            yield ((found[0], text),)
        elif node := _dot(site):
            yield ((node, f"{site.of(node)}{_narrowed(kind)}"),)


@accumulators.rule("terms-narrowed", "what is summed has 16 bits")
def _terms(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.sum", "tl.cumsum"):
        for kind in _NARROW:
            term = node.args[0]
            yield ((term, f"{site.within(term)}{_narrowed(kind)}"),)


@formats.rule("rounded-before-store", "a result passes through 16 bits")
def _before_store(site: Site) -> Iterator[Edit]:
    if (found := cast(site)) and found[2].endswith("element_ty"):
        for kind in _NARROW:
            value = f"{site.within(found[1])}{_narrowed(kind)}"
            yield ((found[0], f"{value}.to({found[2]})"),)


@formats.rule("operands-in-tf32", "a product takes float32 for TF32", backends=GPU)
def _tf32(site: Site) -> Iterator[Edit]:
    node = kernel_call(site, "tl.dot")
    if node and (kind := keyword(node, "input_precision")):
        yield ((kind.value, '"tf32"'),)


@steps.rule("step-removed", "a step that changes a value is not taken")
def _removed(site: Site) -> Iterator[Edit]:
    node = site.node
    if site.kernel and isinstance(node, ast.AugAssign) and not site.is_place:
        yield ((node, "pass"),)


@steps.rule("rescaling-removed", "what was accumulated is not rescaled")
def _rescaling(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Mult)
    if node and site.in_loop and "rescaling" in names(node.right):
        yield ((node, site.within(node.left)),)


@steps.rule("maximum-not-subtracted", "the exponential is taken without shift")
def _no_maximum(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.exp"):
        match node.args[0]:
            case ast.BinOp(left=left, op=ast.Sub()) as given:
                yield ((given, site.of(left)),)


@steps.rule("eps-dropped", "eps is left out")
def _no_eps(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Add)
    if node and isinstance(node.right, ast.Name) and node.right.id == "eps":
        yield ((node, site.within(node.left)),)


@steps.rule("factor-dropped", "a factor is left out")
def _no_factor(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Mult)
    if node and not site.is_place and ast.dump(node.left) != ast.dump(node.right):
        first = isinstance(site.parent, ast.BinOp) and site.parent.left is node
        product = isinstance(node.left, ast.BinOp) and isinstance(
            node.left.op, ast.Mult
        )
        yield ((node, (site.of if first and product else site.within)(node.left)),)


@formulas.rule("eps-outside-root", "eps is added to the root, not under it")
def _eps_outside(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.rsqrt"):
        match node.args[0]:
            case ast.BinOp(left=left, right=ast.Name("eps")):
                yield ((node, f"(1.0 / (tl.sqrt({site.of(left)}) + eps))"),)


def _mean(site: Site) -> ast.Name | None:
    """Return the number of elements by which a sum is divided."""
    node = binary(site, ast.Div)
    divisor = node.right if node else None
    if isinstance(divisor, ast.Name) and divisor.id in _COUNTS:
        return divisor
    return None


@formulas.rule("divisor-off-by-one", "a mean is over one element less, or one more")
def _divisor(site: Site) -> Iterator[Edit]:
    if node := _mean(site):
        yield ((node, f"({node.id} - 1)"),)
        yield ((node, f"({node.id} + 1)"),)


@formulas.rule("minimum-for-maximum", "a minimum is taken for a maximum, or reversely")
def _minimum(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, *_OPPOSITES):
        yield ((node.func, _OPPOSITES[site.of(node.func)]),)


@formulas.rule("plus-for-minus", "+ and - are swapped")
def _plus(site: Site) -> Iterator[Edit]:
    if site.is_place:
        return
    if node := binary(site, ast.Add, ast.Sub):
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        left, right = site.of(node.left), site.within(node.right)
        yield ((node, f"{left} {sign} {right}"),)
    match site.node:
        case ast.AugAssign(target=target, op=ast.Add(), value=value) if site.kernel:
            yield ((site.node, f"{site.of(target)} -= {site.of(value)}"),)


def _number(site: Site) -> float | None:
    """Return a floating constant of a kernel."""
    node = site.node
    if site.kernel and is_number(node) and isinstance(node.value, float):
        return node.value
    return None


@constants.rule("constant-rounded", "a constant has four digits")
def _rounded(site: Site) -> Iterator[Edit]:
    value = _number(site)
    if value is not None and (short := float(f"{value:.4g}")) != value:
        yield ((site.node, repr(short)),)


@fast.rule("exp-by-rounded-exp2", "exp is exp2 with a constant of four digits")
def _exp2(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.exp"):
        yield ((node, f"tl.exp2({site.within(node.args[0])} * 1.443)"),)


@fast.rule("reciprocal-in-16-bits", "a division is a product with a short reciprocal")
def _short_reciprocal(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Div)
    if node and not _mean(site):
        left, right = site.within(node.left), site.within(node.right)
        short = f"(1.0 / {right}){_narrowed('tl.bfloat16')}"
        yield ((node, f"({left} * {short})"),)


@fast.rule("erf-by-tanh", "the error function is approximated by a hyperbolic tangent")
def _erf(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.erf"):
        t = site.within(node.args[0])
        z = f"{t} * (1.1283791670955126 + 0.1009109 * {t} * {t})"
        yield ((node, f"(2.0 / (1.0 + tl.exp(-2.0 * ({z}))) - 1.0)"),)
