"""HTML: one self-contained page for people who would rather look than read.

It loads nothing: style and script are inside, and its content security policy
accepts no others. All texts pass through the template's escaping. Without its script
the page shows the same; copying, filtering and opening all at once need it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz import __version__
from kfuzz.core.event import ContractTally, KernelFinished
from kfuzz.core.verdict import ErrorMap, Tried, Verdict
from kfuzz.report import tables
from kfuzz.report.finding_view import FindingView, view
from kfuzz.report.json_report import replay_lines, replay_total
from kfuzz.report.kinds import ReportKind
from kfuzz.report.promises import promised, title, titled
from kfuzz.report.tables import Gathered, Night, Shown
from kfuzz.report.text import one_line, page

MAX_FINDINGS: Final = 1_000
"""Findings shown at most, those that fail first; a page of more is slow to open."""

MAX_BYTES: Final = 1_000_000
"""Of a page, where leaving out pictures is enough for that."""

MAX_PICTURES: Final = 100_000
"""Bytes of pictures at most; the findings themselves are not shortened."""

MAX_SIGNS: Final = 64
"""Elements that are NaN or infinite and have a letter at most; all are striped."""

OPENED: Final = 3
"""Findings that are open as the page is opened, the first that fail."""

_FOLDER: Final = Path(__file__).parent


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the page."""
    script = (_FOLDER / "script.js").read_text(encoding="utf-8")
    filters: dict[str, Any] = {
        "height": lambda ratio: tables.power_of(ratio) - tables.LEAST_POWER,
        "line": one_line,
    }

    def of(pictures: int) -> str:
        content = _content(run, root, options, pictures)
        return page(_FOLDER / "page.html", content, script, filters)

    left, made = MAX_PICTURES, of(MAX_PICTURES)
    while 0 < (over := len(made.encode()) - MAX_BYTES) <= left:  # by long names
        left -= over
        made = of(left)
    return made


def _content(run: Gathered, root: Path, options: str, pictures: int) -> dict[str, Any]:
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
    past = tables.nights(run.corpus) if run.corpus else {}
    nodes = run.nodes() if run.started else list(dict.fromkeys([*run.nodes(), *past]))
    kernels = [kernel_view(n, run.kernels.get(n), past.get(n, [])) for n in nodes]
    return {
        "headline": tables.headline(run),
        "ending": one_line(run.ending),
        "run": run,
        "grades": grades(run, first),
        "signs": SIGNS,
        "classes": CLASSES,
        "tables": tables,
        "max_signs": MAX_SIGNS,
        "key": _KEY,
        "findings": list(
            zip(anchors, of, views, _pictures(views, pictures), strict=True)
        ),
        "opened": sum(s.fails for s in shown[:OPENED]),
        "kernels_named": {k: i for i, k in enumerate({v.kernel: 0 for v in views})},
        "left_out": len(every) - len(shown),
        "contracts": [
            (places[key], f"{key[0]}/{one_line(key[1])}", title(key[0]), parts[key])
            for key in contracts
            if key in places
        ],
        "kernels": sorted(filter(None, kernels), key=lambda k: -k["worst"].worst),
        "replayed": [
            " ".join(line.strip() for line in replay_lines(r, options=options))
            for r in run.replayed
        ],
        "replay_total": replay_total(run.replayed),
        "version": __version__,
    }


def _anchors(shown: list[Shown]) -> list[str]:
    """Return an id for each finding: its own, so that links keep."""
    seen: Counter[str] = Counter()
    made = []
    for s in shown:
        seen[s.finding.id] += 1
        number = seen[s.finding.id]
        made.append(s.finding.id if number == 1 else f"{s.finding.id}-{number}")
    return made


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
                tables.barely(kernel.tried if kernel else None),
            )
            for contract, (tally, shown) in contracts.items()
        }
        for node, kernel, contracts in tables.matrix(run)
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


def kernel_view(
    node: str, kernel: KernelFinished | None, past: list[Night]
) -> dict[str, Any] | None:
    """Return what is known of one kernel, None for nothing.

    Args:
        node: its node id.
        kernel: what the run came to for it; None where the corpus alone knows it.
        past: its last runs.
    """
    errors = kernel.errors if kernel else past[-1].errors if past else ()
    if kernel is None and not errors:
        return None
    lines = [tables.nothing_compared(kernel), *tables.remarks(kernel)] if kernel else []
    searched = kernel.searched if kernel else ()
    return {
        "name": one_line(node),
        "run": kernel,
        "worst": max(errors, key=lambda t: t.worst, default=Tried()),
        "errors": {(tables.size_of(t), t.dtype): t for t in errors},
        "classes": {tables.size_of(t): t for t in searched or errors},
        "dtypes": sorted({t.dtype for t in errors}),
        "remarks": list(filter(None, lines)),
        "past": past,
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
    kind = "known" if tables.is_known_only(verdict, findings) else str(verdict)
    if verdict is Verdict.CONFORMS and few:
        kind = "thin"
    sign, meaning = SIGNS[kind]
    # The column says which contract it is; a link is read alone.
    label = f"{titled(contract)}: {meaning}" if anchor else meaning
    if tally and (tally.decided or tally.undecided):
        failed = f"{tally.failed} failed of " if tally.failed else ""
        label += f" ({failed}{tally.decided} decided, {tally.undecided} undecided)"
    return Cell(sign, f"v-{kind}", label, anchor)


# What an output holds around its worst element: tables of numbers, or coloured cells.

_VALUES: Final = {
    **{str(i): f"v{i}" for i in range(10)},
    "<": "lo", ">": "hi", "N": "nan", "+": "inf", "-": "inf",
}  # fmt: skip
CLASSES: Final = _VALUES | dict(
    zip(
        tables.ERROR_LETTERS,
        ["u", "w0", "w1", "w2", "w3", "x1", "x2", "x3", "xn"],
        strict=True,
    )
)
"""The class of each letter of `tables.panels`."""
_KEY: Final = tables.ERROR_LETTERS | {
    "0": "the least expected number", "9": "the greatest", "<": "less", ">": "more",
    "N": "NaN", "+": "infinity",
}  # fmt: skip


def _pictures(
    views: list[FindingView], left: int
) -> list[tuple[list[dict[str, Any]], bool]]:
    """Return each finding's pictures, and whether one is left out: of many."""
    made = []
    for shown in views:
        drawn = []
        for name, errors in shown.errors:
            picture = _picture(name, errors)
            left -= picture["size"]
            drawn += [picture] if left >= 0 else []
        made.append((drawn, len(drawn) < len(shown.errors)))
    return made


def _picture(name: str, errors: ErrorMap) -> dict[str, Any]:
    """Return what there is to show of an output."""
    whole = tables.error_letters(errors.codes, errors.columns)
    letters, texts = tables.panels(errors), tables.numbers(errors)
    grids = {} if texts else dict(letters)
    if tuple(map(len, errors.around)) != errors.matrix:
        grids["whole"] = whole
    paths = {title: _paths(rows) for title, rows in grids.items()}
    return {
        "name": name,
        "of": errors,
        "missing": sum(map("".join(whole).count, tables.MISSES)),
        "letters": letters,
        "texts": texts,
        "paths": paths,
        "size": sum(len(d) + 30 for each in paths.values() for _, d in each) + 2_000,
    }


def _paths(rows: list[str]) -> list[tuple[str, str]]:
    """Return for each class of letters the path along the middle of its cells."""
    paths: dict[str, list[str]] = {}
    for down, row in enumerate(rows):
        for run in re.finditer(r"(.)\1*", row):
            step = f"M{run.start()} {down}h{run.end() - run.start()}"
            paths.setdefault(CLASSES[run[1]], []).append(step)
    return [(name, "".join(steps)) for name, steps in paths.items()]


KIND: Final = ReportKind(document)
