"""HTML: one self-contained page for people who would rather look than read.

It loads nothing: style and script are inside, and its content security policy
admits no others. All texts pass through the template's escaping. Without its script
the page shows the same; copying, filtering and opening all at once need it.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from kfuzz import __version__
from kfuzz.report.finding_view import FindingView, view
from kfuzz.report.json_report import replay_lines, replay_total
from kfuzz.report.kinds import ReportKind
from kfuzz.report.kinds.html import grades
from kfuzz.report.kinds.html.maps import LEVELS, MapView, map_view
from kfuzz.report.promises import promised, title
from kfuzz.report.tables import Gathered, Shown, headline
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
        "grades": grades.grades(run, every, first),
        "signs": grades.SIGNS,
        "levels": LEVELS,
        "findings": list(zip(anchors, of, views, maps, strict=True)),
        "kernels_named": list(dict.fromkeys(v.kernel for v in views)),
        "left_out": len(every) - len(shown),
        "contracts": [
            (places[key], f"{key[0]}/{one_line(key[1])}", title(key[0]), parts[key])
            for key in contracts
            if key in places
        ],
        "kernels": [grades.kernel_view(kernel) for kernel in run.kernels.values()],
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


def _maps(views: list[FindingView]) -> list[tuple[list[tuple[str, MapView]], bool]]:
    """Return each finding's maps, and whether one is left out: the page has many."""
    made, left = [], MAX_MAPS
    for shown in views:
        maps = [(name, map_view(errors)) for name, errors in shown.errors[:left]]
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
        facts += [
            ("cases", f"{run.cases:,}"),
            ("time", f"{run.elapsed_s:.1f} s, {run.startup_s:.1f} s of it to start"),
            ("device", one_line(run.device)),
            ("seed", str(run.seed)),
        ]
    if run.started and run.started.when:
        facts.append(("began", one_line(run.started.when)))
    if run.exited and run.exited.code is not None:
        facts.append(("exit code", str(int(run.exited.code))))
    return facts


KIND: Final = ReportKind(document)
