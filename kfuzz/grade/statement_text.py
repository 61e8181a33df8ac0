"""A conformance statement as text, as a Markdown page and as a JSON document."""

import re
from collections.abc import Iterator
from typing import Any, Final

from kfuzz.core.calibration import Soundness
from kfuzz.core.codec import encode
from kfuzz.core.fingerprint import Fingerprint
from kfuzz.core.statement import Fault, Graded, KernelStatement, KnownDefect, Statement
from kfuzz.core.verdict import CHARGED, Verdict
from kfuzz.grade.levels import standing_of, weakest
from kfuzz.report.layout import Section, markdown_page, text_page
from kfuzz.report.proofs import proof_lines, proof_summary
from kfuzz.report.summary import verdict_lines
from kfuzz.report.text import one_line

UNCALIBRATED: Final = "no calibration: an uncalibrated contract does not count"
_LEGEND: Final = (
    "A number is how many cases decided the contract, all of them in the kernel's "
    "favour; a second one, how many could not. *none*: it binds the kernel and no case "
    "came to bear on it. *open*: cases did, and none decided. –: it does not bind."
)
_UNCOUNTED: Final = " °: the contract is uncalibrated and does not count."
# Of a SHA-256, what tells versions of a file apart at a glance.
_DIGITS: Final = 12
_COUNT: Final = re.compile(r"\b\d+ of\b")


def statement_document(statement: Statement) -> dict[str, Any]:
    """Return the JSON form: the statement, and the levels that follow from it."""
    lowest = weakest(statement)
    return {
        "level": lowest.name if lowest else None,
        "levels": {
            k.kernel: {
                "level": s.name,
                "if_calibrated": standing_of(statement, k, trusting=True).name,
                "lacks": list(s.lacks),
                "left_out": list(s.left_out),
                **({"evidence": str(k.tried.evidence)} if k.tried else {}),
            }
            for k in statement.kernels
            if (s := standing_of(statement, k))
        },
        "statement": encode(statement),
    }


def statement_text(statement: Statement) -> list[str]:
    """Return a statement for a terminal."""
    facts = _facts(statement)
    return text_page(
        _title(statement), facts, [*_kernels(statement), *_rest(statement)]
    )


def statement_markdown(statement: Statement) -> list[str]:
    """Return a statement as a page of Markdown."""
    sections = [_grid(statement), *_rest(statement)]
    return markdown_page(_title(statement), _facts(statement), sections)


def _title(statement: Statement) -> str:
    made = statement.fingerprint
    if statement.platform:
        return f"Conformance statement: torch {made.torch} on {statement.device}"
    count = len(statement.kernels)
    noun = "kernel" if count == 1 else "kernels"
    return f"Conformance statement: {count} {noun} on {statement.device}"


def _facts(statement: Statement) -> Iterator[tuple[str, str]]:
    made, lowest = statement.fingerprint, weakest(statement)
    if lowest is not None:
        trusting = weakest(statement, trusting=True)
        text = f"{lowest.name}, that of the weakest kernel"
        if trusting is not None and trusting.level > lowest.level:
            text += f"; {trusting.name} if every contract were calibrated"
        yield "level", text
    yield "calibration", _calibration(statement)
    yield "device", made.device or statement.device
    if made.driver:
        yield "driver", made.driver
    yield "versions", _versions(made)
    yield "budget", _budget(statement)
    yield "looked at by", ", ".join(("results", *statement.instruments))
    if statement.interrupted:
        yield "interrupted", "the run was cut short"


def _calibration(statement: Statement) -> str:
    made = statement.calibration
    if made is None:
        return UNCALIBRATED
    text = (
        f"{made.sound} contracts sound on {made.device} (up to {made.cases} cases for "
        f"a violating witness, {made.conforming_cases} for a conforming one, seed "
        f"{made.seed})"
    )
    if made.unsound:
        text += f"; unsound: {', '.join(made.unsound)}"
    return f"{text}; others do not count"


def _versions(made: Fingerprint) -> str:
    names = ("kfuzz", "torch", "triton", "numpy", "python", "system")
    texts = [
        f"{n} {v}" if n != "system" else v for n in names if (v := getattr(made, n))
    ]
    return ", ".join(texts)


def _budget(statement: Statement) -> str:
    parts = [f"seed {statement.seed}"]
    if statement.max_cases is not None:
        parts.append(f"{statement.max_cases} cases for each kernel")
    if statement.max_time is not None:
        parts.append(f"{statement.max_time:g} s for the run")
    return f"{', '.join(parts)}; it took {statement.elapsed_s:g} s"


def _kernels(statement: Statement) -> Iterator[Section]:
    """Yield a table of the kernels, then the verdicts of each."""
    rows = [("kernel", "operator", "level", "cases", "worst ratio", "violates")]
    standings = [(k, standing_of(statement, k)) for k in statement.kernels]
    for k, standing in standings:
        broken = [n for n, g in k.contracts.items() if g.verdict is Verdict.VIOLATES]
        ratio, violated = f"{k.worst_ratio:.2g}", ", ".join(broken)
        rows.append((k.name, k.operator, standing.name, str(k.cases), ratio, violated))
    yield Section("Kernels", rows=rows, numbers=(3, 4))
    for k, standing in standings:
        lines = list(verdict_lines(k.contracts, tried=k.tried))
        if standing.left_out:
            lines.append(f"not counted, uncalibrated: {', '.join(standing.left_out)}")
        yield Section(f"{k.kernel}: {standing.name}", lines)


def _rest(statement: Statement) -> list[Section]:
    """Return what is said of all kernels together, on every page."""
    kernels = statement.kernels
    sources = [(k.name, f"{k.worst_ratio:.2g}", _short(k.source)) for k in kernels]
    bounds = dict.fromkeys((k.operator, k.bound) for k in kernels)
    return [
        Section("Findings", list(_findings(statement))),
        Section("Listed defects", list(_defects(statement))),
        Section("What the next level lacks", list(_lacking(statement))),
        Section("Proofs", list(_proofs(statement))),
        Section("Declarations beside the defaults", list(_declarations(statement))),
        Section("Rejections", list(_refusals(statement))),
        Section("Bounds", rows=[("operator", "bound"), *bounds]),
        Section("Sources", rows=[("kernel", "worst ratio", "source"), *sources]),
        Section("Notices", statement.notices),
    ]


def _found(fault: Fault) -> str:
    state = "" if fault.state in CHARGED else f" ({fault.state}: not counted)"
    listed = " (a listed defect)" if fault.listed else ""
    text = f"{fault.contract} {fault.kind}{listed}{state}: {fault.message}"
    return f"{one_line(text)}; {fault.id}"


def _grid(statement: Statement) -> Section:
    """Return every kernel under every contract class."""
    marked = statement.calibration is not None
    rows = [("kernel", "operator", "level", "cases", *statement.classes)]
    for kernel in statement.kernels:
        cells = (_cell(kernel.contracts.get(c), marked) for c in statement.classes)
        level = standing_of(statement, kernel).name
        rows.append((kernel.name, kernel.operator, level, str(kernel.cases), *cells))
    legend = _LEGEND + (_UNCOUNTED if marked else "")
    return Section("Verdicts", [legend], rows, prose=True)


def _cell(graded: Graded | None, marked: bool) -> str:
    if graded is None:
        return "–"
    mark = ""
    if marked and graded.calibration is Soundness.UNCALIBRATED:
        mark = "°"
    match graded.verdict:
        case Verdict.CONFORMS:
            text = str(graded.decided)
            text += f" + {graded.undecided}" if graded.undecided else ""
        case Verdict.VIOLATES:
            text = "**violates**"
        case Verdict.UNDER_SPECIFIED:
            text = f"*open* ({graded.undecided})"
        case Verdict.NOT_APPLICABLE:
            text = "*none*"
        case Verdict.ERROR:
            text = "**error**"
    return text + mark


def _findings(statement: Statement) -> Iterator[str]:
    for kernel in statement.kernels:
        for fault in kernel.findings:
            yield f"`{kernel.name}`: {_found(fault)}"


def _defects(statement: Statement) -> Iterator[str]:
    """Yield each listed defect once, with its kernels."""
    groups: dict[KnownDefect, list[KernelStatement]] = {}
    for kernel in statement.kernels:
        for defect in kernel.defects:
            groups.setdefault(defect, []).append(kernel)
    for defect, kernels in groups.items():
        names = ", ".join(
            f"`{k.name}`" + (" (found)" if _shows(k, defect) else "") for k in kernels
        )
        yield f"{defect.contract}, {names}: {defect.where}: {defect.evidence}"


def _shows(kernel: KernelStatement, defect: KnownDefect) -> bool:
    """Whether the run found a defect's class broken; which inputs is for people."""
    return any(f.contract == defect.contract for f in kernel.findings)


def _lacking(statement: Statement) -> Iterator[str]:
    """Yield what holds kernels back, each with the kernels that lack it."""
    groups: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for kernel in statement.kernels:
        standing = standing_of(statement, kernel)
        for lack in standing.lacks:
            # However many cases there were, it is one lack.
            key = (standing.level + 1, _COUNT.sub("too few of", lack))
            groups.setdefault(key, []).append((kernel.name, lack))
    for (level, text), lacking in sorted(groups.items()):
        shown = lacking[0][1] if len({lack for _, lack in lacking}) == 1 else text
        whole = len(lacking) == len(statement.kernels)
        names = ", ".join(f"`{name}`" for name, _ in lacking)
        yield f"KL-{level}: {shown}: {'every kernel' if whole else names}"


def _declarations(statement: Statement) -> Iterator[str]:
    for kernel in statement.kernels:
        if kernel.claims:
            claims = ", ".join(f"{k}={v}" for k, v in kernel.claims.items())
            yield f"`{kernel.name}`: {claims}"


def _proofs(statement: Statement) -> Iterator[str]:
    for kernel in statement.kernels:
        if kernel.proof is not None:
            yield f"{kernel.kernel}: {proof_summary(kernel.proof)}"
            lines = proof_lines(kernel.proof, premises=True)
            yield from (f"{kernel.kernel}: {line.strip()}" for line in lines)


def _refusals(statement: Statement) -> Iterator[str]:
    for kernel in statement.kernels:
        for refusal in kernel.refusals:
            remedy = f"; declare {refusal.remedy}" if refusal.remedy else ""
            yield f"`{kernel.name}`: {refusal.reason} ({refusal.cases} cases){remedy}"


def _short(source: str) -> str:
    kind, colon, digest = source.partition(":")
    return f"{kind}:{digest[:_DIGITS]}" if colon else source
