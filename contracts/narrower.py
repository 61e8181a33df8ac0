"""Other arithmetic than the declared one that a miss may be attributed to."""

from collections.abc import Iterator
from dataclasses import replace

from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import Accumulation
from kfuzz.numerics.formats import FORMATS


def accumulates(operator: Operator, case: Case) -> bool:
    """Whether an element of the result is more than one term summed, or may be.

    In doubt it is: only where it is certainly not would the name of an accumulator
    be wrong.
    """
    if operator.dim is None and operator.reduced is None:
        if operator.forward is not None:  # gradients add up what was broadcast
            return any(p.dims != "*" for p in operator.tensors.values())
        return bool(operator.indices)
    if operator.forward is not None or operator.groups:
        return True
    return operator.reduced_size(case) != 1 or _has_window(operator, case)


def _has_window(operator: Operator, case: Case) -> bool:
    """Whether other dimensions than the reduced one may be summed over.

    So a filter's: it is no vector of parameters and does not have the reduced one.
    """
    others = [s for s in case.tensors.values() if s is not case.lead]
    reduced = operator.reduced
    return any(len(s.axes) > 1 and reduced not in s.axes for s in others)


def other_algorithms(
    operator: Operator, problem: Problem
) -> Iterator[tuple[str, Declaration]]:
    """Yield what the operator lets a kernel declare and this one does not, by name."""
    for name in operator.algorithms:
        if name != problem.declaration.algorithm:
            text = f'algorithm="{name}"'
            yield text, replace(problem.declaration, algorithm=name)


def narrower_declarations(
    problem: Problem, *, sums: bool = True
) -> list[tuple[str, Declaration]]:
    """Return the arithmetics next narrower than the declared one, widest first.

    Each comes with its description. For 16-bit data the candidates are an
    accumulator, intermediates, or both in the data's own format; for float32
    data TF32 operands, then the 16-bit formats.

    Args:
        problem: with the declared arithmetic.
        sums: whether there are sums; where not, what a narrower accumulator stands for
            are the intermediate results, or the operands of a single product.
    """
    claims = problem.declaration
    held = Accumulation.declared(claims).held_bits(problem.format)
    data = problem.format.name
    candidates = ("tf32", "float16", "bfloat16")
    names = [n for n in candidates if data in ("float32", n)]
    out: list[tuple[str, Declaration]] = []
    rounds = claims.intermediates == "float32" and problem.output.precision < 24
    for name in names:
        if FORMATS[name].precision < held:
            narrow = replace(claims, accumulator=name)
            single = "tf32 operands" if name == "tf32" else f"{name} intermediates"
            out.append((f"a {name} accumulator" if sums else single, narrow))
            if rounds:
                both = replace(narrow, intermediates="output")
                text = f"a {name} accumulator and intermediates"
                out.append((text if sums else single, both))
    if rounds:
        coarse = replace(claims, intermediates="output")
        out.insert(0, (f"{problem.output.name} intermediates", coarse))
    return out
