"""What contracts and operators promise in words, from the pages beside their code.

A page is Markdown: a heading begins with the name of a class or an operator, and each
part of what is said of it is an item, `* **Demands**: …`.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

_HERE: Final = Path(__file__).parent
_ITEM: Final = re.compile(r"^\* \*\*(.+?)\*\*: (.+?)(?=^\* \*\*|\Z)", re.M | re.S)
_PARTS: Final = {
    "Kernels": "scope",
    "Cases": "precondition",
    "Demands": "postcondition",
    "Procedure": "procedure",
    "Signature": "symptom",
}


@cache
def _page(name: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the rest of each heading of a page, and its items, by its first word."""
    text = (_HERE / name).read_text(encoding="utf-8")
    found = {}
    for section in re.split(r"^#+ ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        key, _, title = heading.partition(": ")
        items = {part: " ".join(said.split()) for part, said in _ITEM.findall(body)}
        found[key] = title, items
    return found


def promised(contract: str, tolerance: Structure | None = None) -> dict[str, Any]:
    """Return what a contract class says in words, as fields of `ContractClass`.

    Args:
        contract: its id, and the name of its page.
        tolerance: the form of its own tolerance, if it has one.
    """
    title, items = _page(f"classes/{contract}.md")[contract]
    made: dict[str, Any] = {"id": contract, "title": title}
    made |= {field: items[part] for part, field in _PARTS.items() if part in items}
    if tolerance is not None:
        made["tolerance"] = Tolerance(
            tolerance, items["Tolerance"], items["Derivation"]
        )
    return made


def bounded(operator: str, structure: Structure) -> dict[str, Any]:
    """Return what an operator says of its results in words, as fields of `Operator`."""
    _, items = _page("operators/TOLERANCES.md")[operator]
    return {
        "tolerance": Tolerance(structure, items["Tolerance"], items["Derivation"]),
        "special_values": items["Special values"],
    }


def differentiated(operator: str) -> str:
    """Return what an operator says of its gradients in words."""
    return _page("operators/TOLERANCES.md")[operator][1]["Gradients"]


def defined(
    name: str, *, structure: Structure = Structure.INTERVAL, **fields: Any
) -> Operator:
    """Return an operator with what its page says of its results."""
    return Operator(name, **fields, **bounded(name, structure))


def entries(page: str) -> list[dict[str, str]]:
    """Return the items of each heading of a page that has some."""
    return [items for _, items in _page(page).values() if items]


def glossary(heading: str) -> dict[str, str]:
    """Return what the words under a heading of the glossary mean."""
    return _page("GLOSSARY.md")[heading][1]
