"""HTML: one self-contained page for people who would rather look than read.

It loads nothing: style and script are inside, and its content security policy
accepts no others. All texts pass through the template's escaping. Without its script
the page shows the same; copying, filtering and opening all at once need it.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz import __version__
from kfuzz.core.event import ContractTally, KernelFinished
from kfuzz.core.verdict import (
    EXACT,
    GREATEST,
    UNBOUNDED,
    UNDECIDED,
    ErrorMap,
    Verdict,
    ratio_of,
)
from kfuzz.report.finding_view import FindingView, view
from kfuzz.report.json_report import replay_lines, replay_total
from kfuzz.report.kinds import ReportKind
from kfuzz.report.promises import promised, title, titled
from kfuzz.report.tables import (
    Gathered,
    Shown,
    barely,
    headline,
    is_known_only,
    largest,
    matrix,
    nothing_compared,
    remarks,
    size_of,
)
from kfuzz.report.text import one_line, page

MAX_FINDINGS: Final = 1_000
"""Findings shown at most, those that fail first; a page of more is slow to open."""

MAX_MAPS: Final = 50
"""Maps shown at most; the findings themselves are not shortened."""

_FOLDER: Final = Path(__file__).parent


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the page."""
    script = (_FOLDER / "script.js").read_text(encoding="utf-8")
    return page(_FOLDER / "page.html", _content(run, root, options), script)


def _content(run: Gathered, root: Path, options: str) -> dict[str, Any]:
    every = run.findings
    shown = every[:MAX_FINDINGS]
    anchors = _anchors(shown)
    contracts = list(
        dict.fromkeys((s.finding.signature.contract, s.finding.operator) for s in shown)
    )
    parts = {key: promised(*key) for key in contracts}
    places = {key: f"contract-{i}" for i, key in enumerate(contracts) if parts[key]}
    first: dict[tuple[str, str], str] = {}
    for anchor, s in zip(anchors, shown, strict=True):
        first.setdefault((s.kernel, s.finding.signature.contract), anchor)
    of = [places.get((s.finding.signature.contract, s.finding.operator)) for s in shown]
    views = [view(s, options, root=root) for s in shown]
    maps = _maps(views)
    return {
        "headline": headline(run),
        "ending": one_line(run.ending),
        "facts": _facts(run),
        "repeat": one_line(run.exited.command) if run.exited else "",
        "grades": grades(run, first),
        "signs": SIGNS,
        "levels": LEVELS,
        "findings": list(zip(anchors, of, views, maps, strict=True)),
        "kernels_named": list(dict.fromkeys(v.kernel for v in views)),
        "left_out": len(every) - len(shown),
        "contracts": [
            (places[key], f"{key[0]}/{one_line(key[1])}", title(key[0]), parts[key])
            for key in contracts
            if key in places
        ],
        "kernels": [kernel_view(kernel) for kernel in run.kernels.values()],
        "replayed": [
            " ".join(line.strip() for line in replay_lines(r, options=options))
            for r in run.replayed
        ],
        "replay_total": replay_total(run.replayed),
        "notices": [
            (one_line(notice.kernel), one_line(notice.message))
            for notice in run.notices
        ],
        "version": __version__,
    }


def _maps(views: list[FindingView]) -> list[tuple[list[tuple[str, Any]], bool]]:
    """Return each finding's maps, and whether one is left out: the page has many."""
    made, left = [], MAX_MAPS
    for shown in views:
        maps = [(name, _map(errors)) for name, errors in shown.errors[:left]]
        left -= len(maps)
        made.append((maps, len(maps) < len(shown.errors)))
    return made


def _anchors(shown: list[Shown]) -> list[str]:
    """Return an id for each finding: its own, so that links keep."""
    seen: Counter[str] = Counter()
    made = []
    for s in shown:
        seen[s.finding.id] += 1
        number = seen[s.finding.id]
        made.append(s.finding.id if number == 1 else f"{s.finding.id}-{number}")
    return made


def _facts(run: Gathered) -> list[tuple[str, str]]:
    facts = [("kernels", str(len(run.nodes())))]
    if run.started or run.finished:
        start = run.spent["startup_s"]
        facts += [
            ("cases", f"{run.cases:,}"),
            ("time", f"{run.elapsed_s:.1f} s, {start:.1f} s of it to start"),
            ("device", one_line(run.device)),
            ("seed", str(run.seed)),
        ]
    if run.started and run.started.when:
        facts.append(("began", one_line(run.started.when)))
    if run.exited and run.exited.code is not None:
        facts.append(("exit code", str(int(run.exited.code))))
    return facts


# The table of kernels and contracts, and what is known of each kernel.


class Cell(NamedTuple):
    """One cell of a table: what is printed, its class, its meaning, and a link."""

    text: str
    level: str = ""
    label: str = ""
    link: str = ""


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


def grades(run: Gathered, anchors: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return the table of all kernels.

    Args:
        run: what is known of the run.
        anchors: of the page's findings, by node id and contract class.
    """
    rows = {
        node: {
            contract: _grade(
                tally,
                contract,
                shown,
                anchors.get((node, contract), ""),
                barely(kernel.tried if kernel else None),
            )
            for contract, (tally, shown) in contracts.items()
        }
        for node, kernel, contracts in matrix(run)
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
        facts.append(("checks that are always on", text))
    return {
        "kernel": one_line(kernel.kernel),
        "facts": facts,
        "sizes": [(size_of(tried), tried) for tried in kernel.searched],
        "largest": largest(kernel),
        "remarks": list(filter(None, [nothing_compared(kernel), *remarks(kernel)])),
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


# Error maps as tables of coloured cells, small ones with numbers.

# Cells along a side of which numbers can be read.
NUMBERS: Final = 12

LEVELS: Final = (
    ("u", "not decided", "?"),
    ("w0", "exact", "0"),
    ("w1", "up to 1/16 of the tolerance", ""),
    ("w2", "up to 1/4", ""),
    ("w3", "up to 1: within the tolerance", ""),
    ("x1", "misses by up to 4 times the tolerance", "✗"),
    ("x2", "misses by up to 64 times", "✗"),
    ("x3", "misses by more", "✗"),
    ("xn", "misses, without a number", "✗"),
)
"""Class, meaning and sign of each level."""

_SIGNS_OF_LEVELS: Final = {name: sign for name, _, sign in LEVELS}
# The greatest |error| / tolerance of each level that has one.
_LIMITS: Final = ((1 / 16, "w1"), (1 / 4, "w2"), (1, "w3"), (4, "x1"), (64, "x2"))
_WITHOUT_RATIO: Final = {UNDECIDED: "u", EXACT: "w0", UNBOUNDED: "xn"}


def _map(made: ErrorMap) -> dict[str, Any]:
    """Return a map ready to be shown, with a caption and how many cells miss."""
    shape = ", ".join(map(str, made.shape))
    caption = f"{made.output}[{shape}]"
    down, across = made.block
    if (down, across) != (1, 1):
        caption += f", the worst of {down} × {across} elements in a cell"
    cells = made.rows * made.columns
    numbered = max(made.rows, made.columns) <= NUMBERS
    each = [_map_cell(code, numbered=numbered) for code in made.codes]
    rows = [each[i : i + made.columns] for i in range(0, cells, made.columns)]
    summary = f"{made.missing} of {cells} cells miss"
    return {"caption": caption, "summary": summary, "rows": rows}


def _map_cell(code: int, *, numbered: bool) -> Cell:
    ratio = ratio_of(code)
    known = code not in _WITHOUT_RATIO
    level = "x3" if known else _WITHOUT_RATIO[code]
    if known:
        level = next((name for most, name in _LIMITS if ratio <= most), level)
    if not numbered:
        return Cell("", level)
    beyond = "≥" if code == GREATEST else ""
    number = ratio_text(ratio) if known else ""
    return Cell(f"{_SIGNS_OF_LEVELS[level]}{beyond}{number}", level)


def ratio_text(ratio: float) -> str:
    """Return an |error| / tolerance in two digits."""
    return f"{ratio:.2g}" if ratio < 100 or ratio >= 1e4 else f"{ratio:.0f}"


KIND: Final = ReportKind(document)
