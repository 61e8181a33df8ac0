"""What the words and signs of a contract mean, so that it stands alone when printed.

The texts are those of GLOSSARY.md. Numbers are written out there, for the pages are
printed without torch; tests/contracts/test_glossary.py holds them against the code.
"""

import re
from collections.abc import Iterator
from typing import Final

from kfuzz.contracts.language import Contract, Probe
from kfuzz.contracts.prose import glossary

# Where a text uses a sign.
_SIGNS: Final = {
    "RNE": r"\bRNE\b",
    "u": r"(?<![A-Za-z_])\d*\.?\d*u\b",
    "u_o": r"\bu_o\b",
    "gamma": r"\bgamma\(",
    "lambda": r"\blambda\b",
    "E": r"(?<![A-Za-z_])E\b",
    "accumulators": r"\bgamma\((n|K|i|c)",
    "exact": r"\bE = 0 where\b",
    "undecided": r"\bundecided\b|\bgamma\(|\bE\b",
}


def signs(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield the signs that a contract's tolerance uses, each with its meaning."""
    text = f"{contract.tolerance.bound} {contract.tolerance.derivation}"
    for sign, meaning in glossary("Signs").items():
        if re.search(_SIGNS[sign], text):
            yield sign, meaning


def probes(contract: Contract) -> Iterator[tuple[Probe, str]]:
    """Yield the probes that a contract's protocol names, each with what it runs."""
    made = contract.protocol
    for probe in dict.fromkeys((*made.probes, *made.on_miss, *made.sampled)):
        yield probe, glossary("Probes")[probe]


def confirmation(contract: Contract) -> str:
    """Return how a violation of a contract is confirmed."""
    every = glossary("Confirmation")
    text = every[contract.protocol.confirmation]
    if not contract.protocol.by_chance:
        return text
    kinds = ", ".join(contract.protocol.by_chance)
    return f"{text}. Of kind {kinds}: {every['witnessed']}"


def drawing() -> str:
    """Return how cases are drawn and reported, whatever the contract."""
    return glossary("Cases")["always"]
