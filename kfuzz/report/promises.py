"""Contracts for people: the eight parts as paragraphs, as pages, and in one line."""

import textwrap
from dataclasses import fields
from functools import cache

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
from kfuzz.contracts.suite import every_contract
from kfuzz.report.layout import Section, markdown_page, text_page
from kfuzz.report.text import one_line


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


def contract_text(contract: Contract) -> list[str]:
    """Return the eight parts, each under its name."""
    sections = [
        Section(name, [line for text in texts for line in _wrapped(text)])
        for name, texts in whole(contract)
    ]
    return text_page(f"{contract.identifier}: {promise(contract)}", (), sections)


def contract_markdown(contract: Contract) -> list[str]:
    """Return the eight parts as a page of Markdown."""
    sections = as_sections(whole(contract))
    return markdown_page(f"{contract.identifier}: {promise(contract)}", (), sections)


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
    told = whole(_unbound(made, one_line(operator), own))
    if made.tolerance is not None:
        return told
    return [(name, [own] if name == "tolerance" else texts) for name, texts in told]


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
    told = {"tolerance": signs, "protocol": [*probes, how, glossary.drawing()]}
    return [(name, texts + told.get(name, [])) for name, texts in parts_of(contract)]


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
