"""What raises for the way in which it is called, and what raises at times."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.core.verdict import Verdict
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from tests.features.judge.judging import judged, problem
from tests.helpers.tiers import usual

REFERENCE = problem("return torch.relu(x) + 1", "torch.randn(6, 10)")


def candidate(body: str) -> str:
    init = "self.one = nn.Parameter(torch.ones(1))"
    return "import random\n" + problem(body, name="ModelNew", init=init)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with zygote_for("cpu", output=lambda piece: None) as zygote:
        yield zygote


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "verdict", "part"),
    [
        # torch.jit.trace raises under every dispatch mode of torch's.
        usual(
            "return torch.jit.trace(lambda x: torch.relu(x) + 1, (x,))(x)",
            Verdict.UNDER_SPECIFIED,
            "raises where torch's operators are watched",
            is_usual=False,
        ),
        usual(
            "raise ValueError('always')", Verdict.VIOLATES, "K-LIV-01", is_usual=False
        ),
        # What it has taken before it has to take, whatever its shape.
        (
            "if len(x) < 6 and random.random() < 0.3:\n"
            "            raise ValueError('at times')\n"
            "        return torch.relu(x) + 1",
            Verdict.VIOLATES,
            "K-LIV-01: raises ValueError: at times",
        ),
        # A shape that it never takes it may refuse.
        usual(
            "if len(x) < 6:\n"
            "            raise ValueError('too short')\n"
            "        return torch.relu(x) + 1",
            Verdict.CONFORMS,
            "",
            is_usual=False,
        ),
        # Torch refuses `out` under grad mode, which benchmarks turn off.
        usual(
            "return torch.add(torch.relu(x), self.one, out=torch.empty_like(x))",
            Verdict.CONFORMS,
            "",
            is_usual=False,
        ),
    ],
)
def test_it_is_told_from_what_always_raises(
    zygote: Zygote, tmp_path: Path, body: str, verdict: Verdict, part: str
) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(candidate(body))
    made = judged(
        tmp_path / "reference.py", tmp_path / "candidate.py", zygote, tmp_path,
        max_cases=20,
    )  # fmt: skip
    assert made.verdict is verdict, made.reason
    assert part in made.reason
