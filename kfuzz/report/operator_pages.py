"""Operators for people: all of them as a table, one as a page."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import Contract
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.suite import contracts_of
from kfuzz.report.layout import Section, markdown_page, markdown_table, table, text_page
from kfuzz.report.promises import promise
from kfuzz.report.text import counted


def operator_lines(operators: Iterable[Operator], *, markdown: bool) -> list[str]:
    """Return a line for each operator below a header: its call, and its contracts."""
    rows = [(o.name, o.signature_text(), str(len(contracts_of(o)))) for o in operators]
    draw = markdown_table if markdown else table
    return draw([("operator", "call", "contracts"), *sorted(rows)], numbers=(2,))


def operator_page(operator: Operator, *, markdown: bool) -> list[str]:
    """Return what an operator takes and returns, and the contracts that bind it."""
    facts = [
        ("call", operator.signature_text()),
        ("returns", ", ".join(operator.outputs)),
        ("domain", operator.domain_text()),
        ("reference", operator.oracle_text()),
        ("tolerance", f"{operator.tolerance.structure}: {operator.tolerance.bound}"),
    ]
    bound = contracts_of(operator)
    rows = [("contract", "name"), *((i, promise(c)) for i, c in bound.items())]
    sections = [Section(counted(len(bound), "contract"), rows=rows)]
    draw = markdown_page if markdown else text_page
    return draw(operator.name, facts, sections)


def operator_document(operator: Operator) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "name": operator.name,
        "call": operator.signature_text(),
        "outputs": list(operator.outputs),
        "domain": operator.domain_text(),
        "reference": operator.oracle_text(),
        "contracts": {i: promise(c) for i, c in contracts_of(operator).items()},
    }


def class_lines(contracts: Iterable[Contract], *, markdown: bool) -> list[str]:
    """Return a line for each class below a header, with its number of operators."""
    counts = Counter(c.identifier.partition("/")[0] for c in contracts)
    rows = [(i, CLASSES[i].title, str(counts[i])) for i in sorted(CLASSES)]
    draw = markdown_table if markdown else table
    lines = draw([("class", "name", "operators"), *rows], numbers=(2,))
    total = f"{counts.total()} contracts; `kfuzz contracts list '*/softmax'` names some"
    return [*lines, "", total]
