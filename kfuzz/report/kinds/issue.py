"""An issue: one finding as the maintainer of a kernel's package would want it reported.

What happens and what should, where, why, a script that needs no kfuzz, and versions.
Every text that a finding holds is inert or in a block of code: nothing in it is read as
HTML, as a link or as a command of a terminal.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from kfuzz.core.errors import KfuzzError
from kfuzz.engine.scripts import script
from kfuzz.execution.device.backends import named
from kfuzz.report.finding_view import FindingView, packages_of, view
from kfuzz.report.kinds import ReportKind
from kfuzz.report.tables import Gathered, Shown
from kfuzz.report.text import code, fence, inert, markdown_table, plain

MAX_SCRIPT: Final = 40_000
"""Letters of a script that is written out: an issue on GitHub takes 65,536 in all."""

# Parts of a finding in one block, under the labels that they have everywhere.
_SEEN: Final = ("actual", "expected", "access", "input")


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the issue on the finding that is known: its first one."""
    shown = replace(run.findings[0], is_new=True)  # to whom it is reported it is
    made = view(shown, options, root=root)
    blocks = [
        f"# {inert(made.summary)}",
        _text_block(_rows(made)),
        "## Where",
        "\n".join(f"- {line}" for line in _where(shown, made)),
        _folded(made, "trace"),
        "## Probable cause",
        "\n".join(f"- {inert(line)}" for line in _cause(made)),
        "## To reproduce",
        *_reproduction(shown, made),
        "## Versions",
        "\n".join(markdown_table(_versions(shown, root))),
        f"Found by kfuzz {inert(shown.finding.fingerprint.kfuzz)}, "
        f"as {code(made.id)}. Status: {inert(made.state.words)}.",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _lines(made: FindingView, label: str) -> list[str]:
    return [line for p in made.parts if p.label == label for line in p.lines]


def _rows(made: FindingView) -> list[str]:
    rows = []
    for label in _SEEN:
        lines = _lines(made, label)
        if label == "expected" and not lines:
            lines = [made.title.partition(": ")[2] or made.title]
        for i, line in enumerate(lines):
            rows.append(f"{'' if i else label:<9} {line}")
    return rows


def _where(shown: Shown, made: FindingView) -> list[str]:
    """Return the kernel, the lines of source at fault, and the promise broken."""
    finding = shown.finding
    accesses = dict.fromkeys(a.line for a in finding.failure.accesses if a.line)
    ran = f"operator {inert(finding.operator)}, run {named(finding.device).place}"
    return [
        f"kernel {code(finding.signature.kernel)} at {code(made.place)} ({ran})",
        *(f"source line {code(line)}" for line in accesses),
        f"broken promise: {inert(made.title)}",
    ]


def _cause(made: FindingView) -> list[str]:
    return _lines(made, "cause") or ["not known: nothing that was varied changes it"]


def _reproduction(shown: Shown, made: FindingView) -> list[str]:
    """Return the script and how to run it, or why there is none."""
    finding, home = shown.finding, shown.finding.target
    try:
        text = script(finding, "" if home.file or home.module else shown.outside)
    except KfuzzError as error:
        return [f"There is no script without kfuzz: {inert(str(error))}."]
    if len(text) > MAX_SCRIPT:
        return [
            f"The script is {len(text):,} letters long. "
            f"{code(f'kfuzz replay {made.id} --script repro.py')} writes it: attach it."
        ]
    codes = next(line for line in text.splitlines() if line.startswith("Needs torch"))
    mark = fence(text)
    return [
        "Save this as `repro.py` in the project's folder, in which the paths above "
        f"begin, and run `python repro.py`. {inert(codes)}",
        f"{mark}python\n{text.rstrip()}\n{mark}",
    ]


def _versions(shown: Shown, root: Path) -> list[list[str]]:
    """Return versions: those at the time of the finding, and packages as installed."""
    found = shown.finding.fingerprint
    packages = packages_of(shown.finding.target, root)
    rows = [[f"{name} (installed now)", text] for name, text in packages.items()]
    device = found.device or named(shown.finding.device).place
    rows += [
        ["torch", found.torch], ["triton", found.triton], ["numpy", found.numpy],
        ["Python", found.python], ["system", found.system], ["device", device],
        ["driver", found.driver], ["settings", ", ".join(found.flags)],
    ]  # fmt: skip
    return [["", "version"], *([inert(n), inert(v)] for n, v in rows if v)]


def _folded(made: FindingView, label: str) -> str:
    lines = _lines(made, label)
    if not lines:
        return ""
    block = _text_block(lines)
    return f"<details><summary>{label}</summary>\n\n{block}\n\n</details>"


def _text_block(lines: list[str]) -> str:
    text = "\n".join(plain(line) for line in lines)
    mark = fence(text)
    return f"{mark}text\n{text}\n{mark}"


KIND: Final = ReportKind(document, of_one=True)
