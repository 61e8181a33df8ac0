"""SARIF 2.1.0: findings as results, for what shows them beside the code.

Section numbers below are those of the OASIS standard.
"""

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kfuzz import __version__
from kfuzz.core.finding import Patch
from kfuzz.core.verdict import State
from kfuzz.report.finding_view import Depth, finding_lines, line_of, view
from kfuzz.report.kinds import ReportKind
from kfuzz.report.promises import as_sections, promised, proof_summaries, title
from kfuzz.report.tables import Gathered, Shown, nothing_compared
from kfuzz.report.text import one_line, plain, section_markdown

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
    "sarif-schema-2.1.0.json"
)
# What consumers take for the folder of the sources.
_ROOT: Final = "%SRCROOT%"
_BUCKET: Final = "kfuzzBucket/v1"
# Codes with which the tool did what it was asked to (3.20.14).
_SUCCESS: Final = (0, 1)

Document = dict[str, Any]


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the document."""
    # What is fixed is no result any more.
    shown = [s for s in run.findings if s.finding.state is not State.FIXED]
    rules = {_rule_id(s): s for s in shown}
    places = {rule: i for i, rule in enumerate(rules)}
    made: Document = {
        "tool": {
            "driver": {
                "name": "kfuzz",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(s) for s in rules.values()],
            }
        },
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The folder of the project."}}
        },
        "invocations": [_invocation(run)],
        "results": [_result(s, places[_rule_id(s)], root, options) for s in shown],
    }
    if run.seed is not None:
        made["properties"] = {"seed": run.seed, "device": run.device}
    if proofs := {one_line(k): t for k, t in proof_summaries(run.kernels.values())}:
        made.setdefault("properties", {})["proofs"] = proofs
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [made]}
    return json.dumps(log, indent=1, allow_nan=False) + "\n"


def _rule_id(shown: Shown) -> str:
    contract = shown.finding.signature.contract
    return f"{contract}/{one_line(shown.finding.operator)}"


def _rule(shown: Shown) -> Document:
    """Return the contract as a rule (3.49)."""
    contract, operator = shown.finding.signature.contract, shown.finding.operator
    parts = promised(contract, operator)
    promise = _sentence(title(contract))
    rule: Document = {
        "id": _rule_id(shown),
        "name": one_line(contract),
        "shortDescription": {"text": promise},
        "fullDescription": {"text": promise},
        "defaultConfiguration": {"level": "error"},
    }
    if parts:
        words = "\n\n".join(f"{n}: {plain(' '.join(said))}" for n, said in parts)
        page = "\n".join(section_markdown(as_sections(parts), level=3)).strip()
        rule["help"] = {"text": words, "markdown": page}
    return rule


def _result(shown: Shown, rule: int, root: Path, options: str) -> Document:
    finding = shown.finding
    fails = shown.fails or shown.known
    text = "\n".join(finding_lines(view(shown, options, root=root), Depth.MEDIUM))
    result: Document = {
        "ruleId": _rule_id(shown),
        "ruleIndex": rule,
        # What was not confirmed is for a person to judge, and has no level (3.27.10).
        "kind": "fail" if fails else "review",
        "level": "error" if fails else "none",
        "message": {"text": text},
        "locations": [_location(shown, root)],
        "partialFingerprints": {_BUCKET: finding.bucket},
        "properties": {
            "id": finding.id,
            "state": str(finding.state),
            "kind": str(finding.signature.kind),
            "new": shown.is_new,
        },
    }
    patches = [p for p in finding.patches if not Path(p.file).is_absolute()]
    if patches:
        result["fixes"] = list(map(_fix, patches))
    if shown.known:
        reason = one_line(shown.reason) or "marked as known"
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": reason}
        ]
    return result


def _fix(patch: Patch) -> Document:
    """Return a patch: the lines that go, and those that come (3.55)."""
    hunk = Patch.HUNK.fullmatch(patch.diff)
    assert hunk is not None
    first, count, body = hunk.groups()
    gone = {"startLine": int(first), "startColumn": 1, "endColumn": 1}
    gone["endLine"] = int(first) + int(count or 1)
    lines = body.splitlines(keepends=True)
    text = "".join(line[1:] for line in lines if line[0] in " +")
    file = {"uri": quote(patch.file), "uriBaseId": _ROOT}
    changed = {"deletedRegion": gone, "insertedContent": {"text": text}}
    return {
        "description": {"text": _sentence(one_line(patch.statement))},
        "artifactChanges": [{"artifactLocation": file, "replacements": [changed]}],
    }


def _location(shown: Shown, root: Path) -> Document:
    """Return the line that it comes from (3.28), else where the kernel is bound."""
    target, found = shown.finding.target, shown.finding.line
    name = one_line(shown.kernel)
    place: Document = {
        "logicalLocations": [{"fullyQualifiedName": name, "kind": "function"}]
    }
    if found is not None and not Path(found.file).is_absolute():
        place["physicalLocation"] = {
            "artifactLocation": {"uri": quote(found.file), "uriBaseId": _ROOT},
            "region": {"startLine": found.line, "startColumn": found.column + 1},
        }
    elif target.file:
        place["physicalLocation"] = {
            "artifactLocation": {"uri": quote(target.file), "uriBaseId": _ROOT}
        }
        line = line_of(target, root)
        if line is not None:
            place["physicalLocation"]["region"] = {"startLine": line}
    return place


def _invocation(run: Gathered) -> Document:
    """Return how the run was asked for and ended (3.20)."""
    code = run.exited.code if run.exited else None
    made: Document = {"executionSuccessful": not run.ending}
    if code is not None:
        made["executionSuccessful"] = code in _SUCCESS
        made["exitCode"] = int(code)
    if run.ending:
        made["exitCodeDescription"] = one_line(run.ending)
    if run.exited and run.exited.command:
        made["commandLine"] = one_line(run.exited.command)
    if run.started and run.started.when:
        made["startTimeUtc"] = run.started.when
    notes = [
        _notification("note", f"{n.kernel}: {n.message}" if n.kernel else n.message)
        for n in run.notices
    ]
    for kernel in run.kernels.values():
        if text := nothing_compared(kernel):
            notes.append(_notification("warning", f"{kernel.kernel}: {text}"))
    if run.exited and run.exited.error:
        notes.append(_notification("error", run.exited.error))
    if notes:
        made["toolExecutionNotifications"] = notes
    return made


def _notification(level: str, text: str) -> Document:
    return {"level": level, "message": {"text": one_line(text) or "no message"}}


def _sentence(text: str) -> str:
    """Return text as the standard wants messages: a sentence that ends in a period."""
    text = plain(text).strip()
    return text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."


KIND: Final = ReportKind(document)
