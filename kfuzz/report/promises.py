"""Contracts for people: the eight parts as paragraphs, as pages, and in one line."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from kfuzz.contracts import glossary
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import (
    Contract,
    ContractClass,
    Protocol,
    Structure,
    Tolerance,
    ViolationSignature,
)
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.suite import contracts_of, every_contract
from kfuzz.core.event import KernelFinished, KernelProof, Proven, ProvenProperty
from kfuzz.report.text import (
    Section,
    counted,
    one_line,
    table,
    text_page,
)

# A premise of one combination of constants; of these a kernel may have hundreds.
_CONSTANTS = "constants: "
_PAIR = re.compile(r", (?=[\w.]+=)")


def bound_contract(contract: str, operator: str) -> Contract | None:
    """Return the contract that a class makes about one of kfuzz's operators.

    Args:
        contract: id of the class.
        operator: name of the operator.

    Returns:
        None for an operator of the user's own, whose contracts are known only where
        its kernels are loaded.
    """
    return _every().get(f"{contract}/{operator}")


def title(contract: str) -> str:
    """Return the promise of a class in one line; its id where it is unknown."""
    found = CLASSES.get(contract)
    return found.title if found else contract


def titled(contract: str) -> str:
    """Return a class with its name: "C-CMP-03: correct at every declared shape, …"."""
    name = title(contract)
    return contract if name == contract else f"{contract}: {name}"


def promise(contract: Contract) -> str:
    """Return the promise of a contract in one line."""
    found = CLASSES.get(contract.identifier.partition("/")[0])
    return found.title if found else contract.postcondition


def contract_lines(contract: Contract) -> list[str]:
    """Return the eight parts, each under its name."""
    sections = [
        Section(name, [line for text in texts for line in _wrapped(text)])
        for name, texts in whole(contract)
    ]
    return text_page(f"{contract.identifier}: {promise(contract)}", (), sections)


def as_sections(parts: list[tuple[str, list[str]]]) -> list[Section]:
    """Return the parts of a contract, several paragraphs of one as a list."""
    return [Section(name, texts, prose=len(texts) == 1) for name, texts in parts]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 78, break_on_hyphens=False)


@cache
def promised(contract: str, operator: str) -> list[tuple[str, list[str]]]:
    """Return what `whole` does for the contract that a finding breaks.

    Of an operator of the user's own those parts are left open that its author gave.

    Args:
        contract: id of the class; of one that is unknown nothing is returned.
        operator: name of the operator.
    """
    bound = bound_contract(contract, operator)
    if bound is not None:
        return whole(bound)
    made = CLASSES.get(contract)
    if made is None:
        return []
    own = f"as the author of the operator {one_line(operator)!r} gave it"
    parts = whole(_unbound(made, one_line(operator), own))
    if made.tolerance is not None:
        return parts
    return [(name, [own] if name == "tolerance" else texts) for name, texts in parts]


def class_contract(contract: str) -> Contract:
    """Return a class in the form of a contract, what operators add left open.

    Args:
        contract: id of the class, which must exist.
    """
    return _unbound(CLASSES[contract], "*", "as the operator states")


def _unbound(made: ContractClass, operator: str, own: str) -> Contract:
    """Return the contract of a class about an operator of which no more is known."""
    tolerance = Tolerance(Structure.INTERVAL, own, own)
    return made.stated(operator, tolerance=tolerance, oracle=own)


def parts_of(contract: Contract) -> list[tuple[str, list[str]]]:
    """Return the eight parts as (name, paragraphs)."""
    return [(f.name, _part(getattr(contract, f.name))) for f in fields(Contract)]


def whole(contract: Contract) -> list[tuple[str, list[str]]]:
    """Return the parts, and what their signs and probes mean."""
    signs = [f"{sign}: {text}" for sign, text in glossary.signs(contract)]
    probes = [f"{probe}: {text}" for probe, text in glossary.probes(contract)]
    how = f"{contract.protocol.confirmation}: {glossary.confirmation(contract)}"
    more = {"tolerance": signs, "protocol": [*probes, how, glossary.drawing()]}
    return [(name, texts + more.get(name, [])) for name, texts in parts_of(contract)]


def _part(part: str | Tolerance | Protocol | ViolationSignature) -> list[str]:
    match part:
        case Tolerance():
            return [f"{part.structure}: {part.bound}", part.derivation]
        case Protocol():
            lines = [part.text, f"probes: {', '.join(part.probes)}"]
            if part.on_miss:
                lines.append(f"on a miss also: {', '.join(part.on_miss)}")
            if part.sampled:
                lines.append(f"on some cases also: {', '.join(part.sampled)}")
            how = part.confirmation
            if part.by_chance:
                how += f"; {', '.join(part.by_chance)}: witnessed"
            return [*lines, f"confirmation: {how}"]
        case ViolationSignature():
            kinds = ", ".join(part.kinds) or "any"
            return [f"kinds: {kinds}", part.text]
        case _:
            return [part]


@cache
def _every() -> dict[str, Contract]:
    return {contract.identifier: contract for contract in every_contract()}


# Operators for people: all of them as a table, one as a page.


def operator_lines(operators: Iterable[Operator]) -> list[str]:
    """Return a line for each operator below a header: its call, and its contracts."""
    rows = [(o.name, o.signature_text(), str(len(contracts_of(o)))) for o in operators]
    return table([("operator", "call", "contracts"), *sorted(rows)], numbers=(2,))


def operator_page(operator: Operator) -> list[str]:
    """Return what an operator takes and returns, and the contracts that bind it."""
    # Contracts are listed without torch, which an example needs.
    from kfuzz.contracts.gradients.operators import at_an_example

    facts = [
        ("call", operator.signature_text()),
        ("returns", ", ".join(operator.outputs)),
        ("domain", operator.domain_text()),
        ("reference", operator.oracle_text()),
        ("tolerance", f"{operator.tolerance.structure}: {operator.tolerance.bound}"),
        *at_an_example(operator),
    ]
    bound = contracts_of(operator)
    rows = [("contract", "name"), *((i, promise(c)) for i, c in bound.items())]
    forms = [
        (algorithm or "any", form.__name__, (form.__doc__ or "").partition("\n")[0])
        for algorithm, several in operator.forms.items()
        for form in several
    ]
    sections = [
        Section("forms", rows=[("algorithm", "function", "what"), *forms]),
        Section(counted(len(bound), "contract"), rows=rows),
    ]
    return text_page(operator.name, facts, sections)


def operator_pages(operators: Iterable[Operator]) -> list[str]:
    """Return several such pages, a line left free between them."""
    return [line for o in operators for line in (*operator_page(o), "")][:-1]


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


def class_lines(contracts: Iterable[Contract]) -> list[str]:
    """Return a line for each class below a header, with its number of operators."""
    counts = Counter(c.identifier.partition("/")[0] for c in contracts)
    rows = [(i, CLASSES[i].title, str(counts[i])) for i in sorted(CLASSES)]
    lines = table([("class", "name", "operators"), *rows], numbers=(2,))
    total = f"{counts.total()} contracts; `kfuzz contracts list '*/softmax'` names some"
    return [*lines, "", total]


# Proofs as text.


def proof_lines(proof: KernelProof, *, premises: bool = False) -> Iterator[str]:
    """Yield what is proved of a kernel, a line for each property."""
    layouts = one_line("; ".join(proof.layouts))
    yield from table([(p.name, _answer(p, layouts)) for p in proof.properties])
    if proof.withdrawn:
        yield f"a proof for all sizes is withdrawn: {one_line(proof.withdrawn)}"
    if not premises:
        return
    for kernel, texts in proof.premises.items():
        yield f"premises of {one_line(kernel)}:"
        known = [text for text in texts if text.startswith(_CONSTANTS)]
        yield from (f"  {one_line(text)}" for text in texts if text not in known)
        if known:
            yield f"  {one_line(_constants(known))}"


def _constants(texts: Sequence[str]) -> str:
    """Return the combinations of constants that a proof holds for, in a line."""
    found: dict[str, dict[str, None]] = {}
    for text in texts:
        for pair in _PAIR.split(text.removeprefix(_CONSTANTS)):
            name, _, value = pair.partition("=")
            found.setdefault(name, {})[value] = None
    shown = []
    for name, values in found.items():
        kinds = sorted(values)
        if len(kinds) > 1 and all(k.lstrip("-").isdecimal() for k in kinds):
            least, most = min(map(int, kinds)), max(map(int, kinds))
            kinds = [f"{least} to {most} ({len(kinds)} values)"]
        shown.append(f"{name}={', '.join(kinds)}")
    return f"{_CONSTANTS}{counted(len(texts), 'combination')} of {'; '.join(shown)}"


def proof_summary(proof: KernelProof) -> str:
    """Return one line on what is proved of a kernel."""
    answers = Proven.ALL_SIZES, Proven.REFUTED, Proven.OPEN
    proved, refuted, left = map(proof.count, answers)
    reasons = {p.why for p in proof.properties}
    if left == len(proof.properties) and len(reasons) == 1:
        return f"nothing proved: {one_line(*reasons)}"
    text = f"{proved} of {len(proof.properties)} properties proved for all sizes"
    text += f", where {'; '.join(proof.layouts)}" if proved and proof.layouts else ""
    text += f", {refuted} refuted" if refuted else ""
    if left:
        text += f", {left} open: `kfuzz prove {proof.kernel}` prints which, and why"
    if proved and proof.unwatched:
        every = proof.watched + proof.unwatched
        text += (
            f"; time was up before the premises were checked on {proof.unwatched} of "
            f"{every} structures of inputs: a longer --max-time checks them"
        )
    text = one_line(text)
    return f"{text}; {one_line(proof.withdrawn)}" if proof.withdrawn else text


def proof_summaries(kernels: Iterable[KernelFinished]) -> Iterator[tuple[str, str]]:
    """Yield the name of each kernel of which something is proved, and that line."""
    for kernel in kernels:
        if kernel.proof is not None:
            yield kernel.kernel, proof_summary(kernel.proof)


def _answer(found: ProvenProperty, layouts: str) -> str:
    if found.answer is Proven.ALL_SIZES:
        return f"{found.answer}{layouts and f', where {layouts}'}"
    place = f"line {found.line}: " if found.line else ""
    text = f"{found.answer}: {place}{one_line(found.why)}"
    if found.finding:
        text += f" ({found.finding})"
    return text
