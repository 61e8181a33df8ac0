"""What arguments have in common: found in draws, and kept by values that are made."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.features.judge.kernelbench.problem import Form, inputs_of
from kfuzz.features.judge.kernelbench.structures import Structure, structures_of
from kfuzz.features.judge.kernelbench.values import shapes_of

Draw = Callable[[], Tensor]


def symmetric(n: int) -> Tensor:
    x = torch.rand(n, n)
    return (x + x.t()) / 2


def definite(n: int) -> Tensor:
    x = torch.rand(n, n)
    return x @ x.t() + torch.eye(n)


def padded() -> Tensor:
    x = torch.rand(10, 5)
    x[:, 0] = 0
    return x


def offsets() -> Tensor:
    inner = torch.randint(1, 50, (8,)).sort().values
    return torch.cat([torch.tensor([0]), inner, torch.tensor([64])])


KNOWN: dict[str, tuple[Draw, list[str]]] = {
    "lower": (lambda: torch.rand(9, 9).tril(), ["lower triangular"]),
    "small": (lambda: torch.randn(2, 2).triu(), ["upper triangular"]),
    "batch": (lambda: torch.rand(3, 5, 5).tril(-1), ["strictly lower triangular"]),
    "diagonal": (lambda: torch.rand(7).diag(), ["diagonal"]),
    "band": (
        lambda: torch.rand(9, 9).tril(1).triu(-1),
        ["zero but for columns row -1 to row +1"],
    ),
    "causal": (
        lambda: torch.full((8, 8), -torch.inf).triu(1),
        ["strictly upper triangular, -inf where it is not 0"],
    ),
    "symmetric": (lambda: symmetric(6), ["symmetric"]),
    "definite": (lambda: definite(6), ["symmetric", "positive definite"]),
    "shares": (
        lambda: torch.rand(4, 9).softmax(-1),
        ["made of numbers that sum to 1 along dimension 1"],
    ),
    "logarithms": (
        lambda: torch.randn(4, 9).log_softmax(0),
        ["made of logarithms of numbers that sum to 1 along dimension 0"],
    ),
    "unit": (
        lambda: functional.normalize(torch.randn(5, 7), dim=1),
        ["made of vectors of length 1 along dimension 1"],
    ),
    "sorted": (
        lambda: torch.rand(3, 20).cumsum(1),
        ["sorted along dimension 1, rising"],
    ),
    "segments": (
        lambda: torch.randint(0, 9, (60,)).sort().values,
        ["sorted along dimension 0, rising"],
    ),
    "falling": (
        lambda: torch.rand(40).sort(descending=True).values,
        ["sorted along dimension 0, falling"],
    ),
    "one-hot": (
        lambda: functional.one_hot(torch.randint(0, 6, (8,)), 6).float(),
        ["one-hot along dimension 1"],
    ),
    "mask": (lambda: (torch.rand(8, 8) > 0.5).float(), ["made of 0, 1 alone"]),
    "signs": (lambda: torch.randint(0, 2, (30,)) * 2.0 - 1, ["made of -1, 1 alone"]),
    "classes": (
        lambda: torch.randint(0, 10, (40,)).float(),
        ["made of integers from 0 to 9"],
    ),
    "order": (
        lambda: torch.randperm(12),
        ["a permutation of 0 to n-1 along its last dimension"],
    ),
    "distinct": (
        lambda: torch.randperm(40)[:20],
        ["without a number that stands twice along its last dimension"],
    ),
    "scale": (lambda: torch.tensor(0.5), ["0.5 everywhere"]),
    "repeated": (
        lambda: torch.rand(1, 6).expand(4, 6).contiguous(),
        ["the same at every index of dimension 0"],
    ),
}  # fmt: skip


def draws(draw: Draw, count: int = 5) -> list[Tensor]:
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        made.append(draw())
    return made


def made_for(kinds: tuple[Structure, ...], x: Tensor) -> Tensor:
    for kind in kinds:
        x = x if kind.holds(x) else kind.made(x)
    return x


@pytest.mark.parametrize("name", KNOWN)
def test_a_structure_is_found_and_values_are_made_for_it(name: str) -> None:
    draw, told = KNOWN[name]
    seen = draws(draw)
    kinds = structures_of(seen)
    assert [kind.text for kind in kinds] == told
    assert all(kind.holds(x) for kind in kinds for x in seen)
    shape = [max(n - 1, 1) if n > 2 else n for n in seen[0].shape]
    noise = 30 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    made = made_for(kinds, noise.to(seen[0].dtype))
    assert made.shape == torch.Size(shape)
    assert made.dtype is seen[0].dtype
    assert all(kind.holds(made) for kind in kinds)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(8, 8),
        lambda: torch.rand(1, 1),
        lambda: torch.rand(1),
        lambda: torch.randn(8, 8).relu(),
        lambda: torch.rand(2, 2).round(),
        lambda: torch.randint(0, 2, (1,)),
        lambda: torch.randint(0, 10, (16,)),
        lambda: torch.rand(8, 8) > 0.5,
        lambda: torch.rand(30, 30) * (torch.rand(30, 30) > 0.98),
        lambda: torch.rand(2),  # rising by chance, now and then
    ],
)
def test_what_holds_by_chance_is_no_structure(draw: Draw) -> None:
    kinds = structures_of(draws(draw))
    assert not [k for k in kinds if not k.text.startswith("made of")]


@pytest.mark.parametrize(
    "draw",
    [
        padded,
        offsets,
        lambda: torch.arange(9.0),
        lambda: torch.linalg.qr(torch.randn(6, 6))[0],
    ],
)
def test_a_structure_that_no_values_can_be_made_for_is_seen(draw: Draw) -> None:
    assert any(k.fixed for k in structures_of(draws(draw)))


@pytest.fixture
def form(tmp_path: Path) -> Callable[[str, str], Form]:
    def made(forward: str, inputs: str) -> Form:
        path = tmp_path / f"reference_{abs(hash(inputs))}.py"
        path.write_text(
            "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
            f"    def forward(self, a, b):\n        return {forward}\n"
            f"def get_inputs():\n    {inputs}\n"
            "def get_init_inputs():\n    return []\n"
        )
        return Form(path, torch.device("cpu"))

    return made


def test_square_matrices_stay_square_and_what_is_fixed_keeps_its_size(
    form: Callable[[str, str], Form],
) -> None:
    free = form("a.sum() + b.sum()", "return [torch.rand(6, 6), torch.rand(6, 6)]")
    assert len(shapes_of(free, inputs_of(free)).free) == 4
    lower = form("a.sum() + b.sum()", "return [torch.rand(6, 6).tril(), torch.rand(6)]")
    shapes = shapes_of(lower, inputs_of(lower))
    assert shapes.axes[0] == ("A", "B")
    assert "B == A" in shapes.rules
    fixed = form("a.sum() + b.sum()", "return [torch.arange(9.), torch.rand(6)]")
    shapes = shapes_of(fixed, inputs_of(fixed))
    assert "A == 9" in shapes.rules
    assert shapes.free == ("B",)


def test_arguments_that_equal_one_another_stay_equal(
    form: Callable[[str, str], Form],
) -> None:
    made = form("a @ b", "x = torch.rand(5, 7); return [x, x.t().contiguous()]")
    inputs = inputs_of(made)
    assert inputs.texts == ("b is the transpose of a, in all 5 draws",)
    values = inputs.fitted({"a": torch.ones(2, 3), "b": torch.zeros(3, 2)})
    assert torch.equal(values["b"], torch.ones(3, 2))
    assert inputs.outside({"a": torch.ones(2, 3), "b": torch.zeros(3, 2)})


def test_a_row_and_a_matrix_are_no_copies(form: Callable[[str, str], Form]) -> None:
    made = form("a[:, None] * b", "return [torch.rand(6), torch.rand(6, 4)]")
    assert inputs_of(made).texts == ()


def test_infinities_are_in_no_structure(form: Callable[[str, str], Form]) -> None:
    made = form("a @ b", "x = torch.rand(6, 6); return [x + x.t(), torch.rand(6, 2)]")
    inputs = inputs_of(made)
    a, b = torch.ones(3, 3), torch.full((3, 2), torch.inf)
    a[0, 1] = torch.inf
    assert inputs.outside({"a": a, "b": b}) == "a is not finite"
    fitted = inputs.fitted({"a": a, "b": b})
    assert not inputs.outside(fitted)
    assert torch.equal(fitted["b"], b)


def test_a_file_that_seeds_itself_fixes_nothing_by_that(
    form: Callable[[str, str], Form],
) -> None:
    made = form(
        "a + b", "torch.manual_seed(0); return [torch.rand(6, 6).tril(), torch.rand(6)]"
    )
    inputs = inputs_of(made)
    assert inputs.texts == ("a is lower triangular, in the one draw",)
