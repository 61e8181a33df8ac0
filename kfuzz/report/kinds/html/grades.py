"""The table of kernels and contracts, and what is known of each kernel."""

from collections.abc import Mapping
from typing import Any, Final

from kfuzz.core.event import ContractTally, KernelFinished
from kfuzz.core.verdict import Verdict
from kfuzz.report.finding_view import Cell
from kfuzz.report.kinds.html.maps import ratio_text
from kfuzz.report.promises import title, titled
from kfuzz.report.tables import (
    Gathered,
    Shown,
    barely,
    by_contract,
    is_known_only,
    nothing_compared,
    remarks,
)
from kfuzz.report.text import one_line

SIGNS: Final = {
    "violates": ("✗", "violates"),
    "known": ("K", "violates in known ways only"),
    "error": ("!", "could not be judged"),
    "conforms": ("✓", "conforms"),
    "thin": ("(✓)", "conforms, barely tried"),
    "under_specified": ("?", "undecided or not confirmed"),
    "not_applicable": ("–", "not applicable"),
    "none": ("·", "nothing is known"),
}
"""Sign and meaning of each kind of cell; colour only repeats what they say."""


def grades(
    run: Gathered, findings: list[Shown], anchors: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """Return the table of all kernels.

    Args:
        run: what is known of the run.
        findings: its findings.
        anchors: of the page's findings, by node id and contract class.
    """
    found = by_contract(findings)
    rows: dict[str, dict[str, Cell]] = {}
    for node in run.nodes():
        kernel = run.kernels.get(node)
        tallies = dict(kernel.contracts) if kernel else {}
        classes = [*tallies, *(c for n, c in found if n == node)]
        rows[node] = {
            c: _grade(
                tallies.get(c),
                c,
                found.get((node, c), []),
                anchors.get((node, c), ""),
                barely(kernel.tried if kernel else None),
            )
            for c in classes
        }
    every = {c for cells in rows.values() for c in cells}
    each = [(c, cell) for cells in rows.values() for c, cell in cells.items()]
    applying = sorted({c for c, cell in each if cell.level != "v-not_applicable"})
    unknown = Cell(SIGNS["none"][0], "v-none", SIGNS["none"][1])
    return {
        "columns": [(c, title(c)) for c in applying],
        "rows": [
            (
                one_line(node),
                one_line(run.kernels[node].operator) if node in run.kernels else "",
                [cells.get(c, unknown) for c in applying],
            )
            for node, cells in rows.items()
        ],
        "nowhere": [titled(c) for c in sorted(every.difference(applying))],
    }


def kernel_view(kernel: KernelFinished) -> dict[str, Any]:
    """Return what is known of one kernel."""
    rate, ratio = f"{kernel.cases_per_s:.1f}", ratio_text(kernel.worst_ratio)
    facts = [
        ("cases", f"{kernel.cases}, {rate}/s"),
        ("greatest error of a passing case", f"{ratio} of the tolerance"),
    ]
    if kernel.bursts:
        text = f"{kernel.screened} cases in batches of {kernel.bursts} structures"
        facts.append(("held to what is always on", text))
    if not kernel.uncompared and (few := barely(kernel.tried)):
        facts.append(("what conforms", few))
    return {
        "kernel": one_line(kernel.kernel),
        "facts": facts,
        "told": list(filter(None, [nothing_compared(kernel), *remarks(kernel)])),
    }


def _grade(
    tally: ContractTally | None,
    contract: str,
    findings: list[Shown],
    anchor: str,
    few: str,
) -> Cell:
    verdict = tally.verdict if tally else Verdict.UNDER_SPECIFIED
    known = tally is None and any(shown.known for shown in findings)
    if known or any(shown.fails for shown in findings):
        verdict = Verdict.VIOLATES
    kind = "known" if is_known_only(verdict, findings) else str(verdict)
    if verdict is Verdict.CONFORMS and few:
        kind = "thin"
    sign, meaning = SIGNS[kind]
    label = f"{titled(contract)}: {meaning}"
    if tally and (tally.decided or tally.undecided):
        failed = f"{tally.failed} failed of " if tally.failed else ""
        label += f" ({failed}{tally.decided} decided, {tally.undecided} undecided)"
    return Cell(sign, f"v-{kind}", label, anchor)
