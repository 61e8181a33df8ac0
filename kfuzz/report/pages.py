"""Everything about one finding, and one contract, for people to read."""

import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Final

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import Contract
from kfuzz.core.codec import encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Verdict
from kfuzz.report.accesses import draw_accesses
from kfuzz.report.drawing import (
    draw_case,
    draw_failure,
    draw_grid,
    draw_scalar,
    draw_tensor,
    one_line,
    plain,
    shown_path,
    tensor_head,
)
from kfuzz.report.finding_text import target_option
from kfuzz.report.promises import bound_contract, parts, whole

# A part of a contract on the page of a finding; `contracts show` has it whole.
PART_WIDTH: Final = 110
# A traceback's end says what happened.
TRACE_LINES: Final = 20

_LABEL: Final = 15


def finding_page(finding: Finding, path: Path, *, options: str = "") -> list[str]:
    """Return everything about a finding.

    Args:
        finding: as stored.
        path: its folder.
        options: what the commands printed at the end need to find it.
    """
    lines = [f"{finding.id}: {finding.state}", *_verdict(finding)]
    counts = f"{finding.input_elements} elements"
    if finding.nonzero_elements is not None:
        counts += f", {finding.nonzero_elements} non-zero"
    lines += ["", f"minimal input ({counts})"]
    for name, spec in finding.case.tensors.items():
        if grid := draw_grid(spec):
            lines += [f"  {tensor_head(name, spec)}", *(f"    {row}" for row in grid)]
        else:
            lines.append(f"  {draw_tensor(name, spec)}")
    scalars = finding.case.scalars.items()
    lines += [f"  {draw_scalar(name, value)}" for name, value in scalars]
    if edge := finding.case.edge:
        beside = one_line(edge.argument) or "every argument"
        if edge.allocation is not None:
            beside = f"tensor {edge.allocation} that it allocates, counted from 0"
        lines.append(f"  a page that faults lies at the {edge.side} of {beside}")
    lines += _section("failing element", draw_failure(finding.failure))
    accesses = draw_accesses(finding.failure.accesses, finding.case)
    lines += _section("accesses", accesses)
    lines += _why(finding)
    lines += _section("first found as", draw_case(finding.first))
    trace = plain(finding.failure.trace).splitlines()
    lines += _section("trace (its end)", trace[-TRACE_LINES:])
    lines += _section(
        "promise",
        _shortened(bound_contract(finding.signature.contract, finding.operator)),
    )
    environment = encode(finding.fingerprint).items()
    texts = [f"{k:<{_LABEL}} {one_line(str(v))}" for k, v in environment if v]
    lines += _section("environment", texts)
    history = (f"{c.when} {c.state} {c.note}" for c in finding.history)
    lines += _section("history", [one_line(text) for text in history])
    named = f"{finding.id}{plain(target_option(finding))}{options}"
    commands = (
        f"kfuzz replay {named}",
        f"kfuzz replay {named} --script repro.py",
        f"kfuzz shrink {named}",
    )
    lines += _section("stored", [one_line(shown_path(path))])
    return lines + _section("next", list(commands))


def contract_text(contract: Contract, title: str) -> list[str]:
    """Return the eight parts, each under its name."""
    lines = [f"{contract.identifier}: {title}"]
    for name, texts in whole(contract):
        lines += ["", name]
        for text in texts:
            wrapped = textwrap.wrap(text, 78, break_on_hyphens=False)
            lines += [f"  {line}" for line in wrapped]
    return lines


def contract_markdown(contract: Contract, title: str) -> list[str]:
    """Return the eight parts as a Markdown section."""
    lines = [f"# {contract.identifier}: {title}"]
    for name, texts in whole(contract):
        lines += ["", f"## {name}", ""]
        lines += [f"- {t}" for t in texts] if len(texts) > 1 else list(texts)
    return lines


def title_of(contract: Contract) -> str:
    """Return the promise in one line."""
    found = CLASSES.get(contract.identifier.partition("/")[0])
    return found.title if found else contract.postcondition


def _verdict(finding: Finding) -> list[str]:
    signature = finding.signature
    found = CLASSES.get(signature.contract)
    title = f": {found.title}" if found else ""
    kind = f"{signature.kind}:{signature.detail}" if signature.detail else (
        str(signature.kind)
    )  # fmt: skip
    claims = _claims(finding.declaration)
    facts = {
        "kernel": finding.target.node_id,
        "operator": f"{finding.operator}, run on {finding.device}",
        "kind": kind + (f" of {signature.output}" if signature.output else ""),
        "bucket": finding.bucket,
        "declared": ", ".join(claims) or "the defaults",
        "seed": str(finding.seed),
    }
    if mark := finding.mark:
        facts["known"] = f"{mark.reason} {mark.link}".strip()
    head = f"{Verdict.VIOLATES} {signature.contract}/{one_line(finding.operator)}"
    lines = [f"{head}{title}", f"  {one_line(finding.failure.message)}"]
    return lines + [f"  {k:<{_LABEL}} {one_line(v)}" for k, v in facts.items()]


def _why(finding: Finding) -> list[str]:
    explanation, reduction = finding.explanation, finding.reduction
    texts = []
    if explanation is not None:
        texts = [one_line(line) for line in explanation.lines]
        if explanation.features:
            texts.append(f"needs: {', '.join(explanation.features)}")
        if not explanation.complete:
            texts.append("(the time ran out before everything was varied)")
    if reduction is not None:
        texts.append(
            f"reduced in {reduction.evaluations} runs; stopped by: "
            f"{one_line(reduction.stopped)}"
        )
    return _section("why", texts)


def _claims(declaration: Declaration) -> list[str]:
    default = Declaration()
    return [
        f"{f.name}={encode(getattr(declaration, f.name))!r}"
        for f in fields(Declaration)
        if getattr(declaration, f.name) != getattr(default, f.name)
    ]


def _shortened(contract: Contract | None) -> list[str]:
    if contract is None:
        return []  # an operator of the user's own
    return [
        f"{name:<{_LABEL}} {textwrap.shorten(texts[0], PART_WIDTH, placeholder=' …')}"
        for name, texts in parts(contract)
    ]


def _section(title: str, texts: list[str]) -> list[str]:
    return ["", title, *(f"  {text}" for text in texts)] if texts else []
