"""Members that need further matrix products are bounded as they are alone."""

import pytest
import torch

from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.models.dots import Dots, dots

MEMBERS = 6


def problem_of(**claims: object) -> Problem:
    format = FORMATS["float32"]
    declaration = Declaration(**claims)  # type: ignore[arg-type]
    return Problem(tensors={}, scalars={}, format=format, output=format,
                   declaration=declaration)  # fmt: skip


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    a = torch.randn((MEMBERS, 4, 5), generator=source).double()
    b = torch.randn((MEMBERS, 5, 3), generator=source).double()
    a[1, 2, 0], a[1, 2, 3] = float("inf"), float("-inf")
    b[2, 0, 0] = float("nan")
    a[4, 0, 0], b[4, 1, 1] = 1e-41, float("inf")
    b[5, 4, 2] = 3e-39
    addend = torch.randn((MEMBERS, 1, 3), generator=source).double()
    return a, b, addend


def tensors_of(made: Dots) -> list[torch.Tensor]:
    c = made.classes
    every = (made.value, made.magnitude, made.error, made.admitted, c.reference)
    masks = (c.admitted, c.finite, c.ambiguous)
    return [torch.nan_to_num(x.double(), nan=-7.25) for x in (*every, *masks)]


@pytest.mark.parametrize("claims", [{}, {"accumulator": "tf32x3"}])
@pytest.mark.parametrize("added", [False, True])
def test_a_batch_is_what_its_members_are(claims: dict[str, str], added: bool) -> None:
    a, b, addend = operands()
    problem = problem_of(**claims)
    together = tensors_of(dots(problem, a, b, addend=addend if added else None))
    for n in range(MEMBERS):
        own = addend[n : n + 1] if added else None
        alone = tensors_of(dots(problem, a[n : n + 1], b[n : n + 1], addend=own))
        for one, other in zip(together, alone, strict=True):
            assert torch.equal(one[n : n + 1], other)


def test_padding_of_all_members_is_that_of_each() -> None:
    a, b, _ = operands()
    b[:, 4] = 0.0
    present = torch.ones((1, 5, 3), dtype=torch.bool)
    present[:, 4] = False
    a[1, 0, 4] = float("inf")
    together = tensors_of(dots(problem_of(), a, b, present=present))
    for n in range(MEMBERS):
        alone = dots(problem_of(), a[n : n + 1], b[n : n + 1], present=present)
        for one, other in zip(together, tensors_of(alone), strict=True):
            assert torch.equal(one[n : n + 1], other)
