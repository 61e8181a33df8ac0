"""Every contract there is: classes bound to operators."""

import fnmatch
from collections.abc import Iterable

from kfuzz.contracts.classes import ATTRIBUTION, k_grd_01
from kfuzz.contracts.gradients.operators import gradients_of, rule_of
from kfuzz.contracts.language import Contract
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import UsageError, suggestion


def contracts_of(
    operator: Operator, declaration: Declaration | None = None
) -> dict[str, Contract]:
    """Return the contracts that bind an operator, by class id."""
    claims = operator.defaults if declaration is None else declaration
    return {c.id: c.bind(operator) for c in ATTRIBUTION if c.binds(operator, claims)}


def every_contract() -> list[Contract]:
    """Return all contracts of all operators, sorted by identifier."""
    made = [c for o in OPERATORS.values() for c in contracts_of(o).values()]
    for operator in OPERATORS.values():
        if rule_of(operator) is not None:
            gradients = next(iter(gradients_of(operator).values()))
            made.append(k_grd_01.K_GRD_01.bind(gradients))
    return sorted(made, key=lambda c: c.identifier)


def find_contract(identifier: str) -> Contract:
    """Return one contract by its identifier, e.g. "C-PRC-01/matmul".

    Raises:
        UsageError: if there is none, with the nearest.
    """
    every = {c.identifier: c for c in every_contract()}
    if identifier not in every:
        raise UsageError(
            f"no contract {identifier!r}",
            fix=suggestion(identifier, every).partition("valid:")[0].strip()
            + " `kfuzz contracts list` prints all",
        )
    return every[identifier]


def select_classes(include: Iterable[str], exclude: Iterable[str]) -> frozenset[str]:
    """Return the class ids that the globs select.

    Args:
        include: globs over class ids or identifiers; empty means all.
        exclude: globs to leave out.

    Raises:
        UsageError: if a glob matches nothing, or together they leave nothing.
    """
    ids = [c.id for c in ATTRIBUTION]

    def matching(glob: str) -> set[str]:
        found = {i for i in ids if fnmatch.fnmatchcase(i, glob.split("/")[0])}
        if not found:
            raise UsageError(f"no contract matches {glob!r}", fix=suggestion(glob, ids))
        return found

    chosen = set().union(*map(matching, include)) if include else set(ids)
    left = frozenset(chosen.difference(*map(matching, exclude)))
    if not left:
        raise UsageError(
            "no contract is left to judge", where="--contracts, --exclude-contracts"
        )
    return left
