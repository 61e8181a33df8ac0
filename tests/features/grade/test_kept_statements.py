"""The statements kept as examples: readable, honest about findings, in agreement."""

from pathlib import Path

import pytest

from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.features.lab.grade.statement import Statement, read_statement
from kfuzz.features.lab.grade.statement_text import (
    standing_of,
    statement_page,
)

FOLDER = Path(__file__).parents[3] / "contracts" / "platform" / "statements"
KEPT = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


@pytest.fixture(scope="module")
def statements() -> dict[str, Statement]:
    return {name: read_statement(path) for name, path in KEPT.items()}


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_statement_is_whole_and_its_page_has_every_kernel(
    name: str, statements: dict[str, Statement]
) -> None:
    made = statements[name]
    assert made.platform
    assert not made.interrupted
    page = statement_page(made, markdown=True)
    for kernel in made.kernels:
        row = f"| {kernel.name} | {kernel.operator} |"
        assert any(line.startswith(row) for line in page)


@pytest.mark.parametrize("name", KEPT)
def test_every_finding_in_a_kept_statement_is_a_listed_defect(
    name: str, statements: dict[str, Statement]
) -> None:
    for kernel in statements[name].kernels:
        attributed = [f for f in kernel.findings if f.state in ATTRIBUTED]
        assert [f.message for f in attributed if not f.listed] == []
        if attributed:
            assert standing_of(statements[name], kernel).level < 3


@pytest.mark.parametrize("name", KEPT)
def test_a_contract_that_a_kept_statement_violates_has_a_listed_defect(
    name: str, statements: dict[str, Statement]
) -> None:
    for kernel in statements[name].kernels:
        listed = {f.contract for f in kernel.findings if f.listed}
        violated = {
            contract
            for contract, graded in kernel.contracts.items()
            if graded.verdict is Verdict.VIOLATES
        }
        assert violated <= listed, kernel.name
