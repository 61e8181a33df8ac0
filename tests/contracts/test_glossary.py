"""`kfuzz contracts show`: the numbers on its pages are the code's."""

import json
import re

import pytest
import torch

from kfuzz.app import main
from kfuzz.contracts import binding as derive
from kfuzz.contracts import glossary, prose
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.language import SECOND_CALL_SHARE, Probe
from kfuzz.contracts.suite import every_contract, find_contract
from kfuzz.engine.confirm import CONFIRMATIONS
from kfuzz.execution.memory import changes as zones
from kfuzz.execution.memory.poison import Poison, poison_word

SIGNS = dict(glossary.signs(find_contract("C-PRC-01/matmul")))


def text_of(probe: Probe) -> str:
    return prose.glossary("Probes")[probe]


def test_every_probe_is_explained() -> None:
    assert set(prose.glossary("Probes")) == set(Probe)


def test_every_part_of_every_contract_has_a_text() -> None:
    for made in every_contract():
        parts = (
            made.scope, made.precondition, made.postcondition, made.oracle,
            made.tolerance.bound, made.tolerance.derivation, made.protocol.text,
            made.signature.text,
        )  # fmt: skip
        assert all(len(part) > 3 for part in parts), made.identifier
        assert list(glossary.probes(made)), made.identifier
        assert glossary.confirmation(made)


def test_the_ladder_guards_and_poisons_are_the_codes() -> None:
    ladder = ", ".join(f"({rows}, {n})" for rows, n in derive.LADDER)
    assert ladder in text_of(Probe.FRIENDLY)
    assert f"exceeds {derive.MODERATE:g}" in text_of(Probe.RECENTRED)
    low, high = zones.GUARD_BYTES >> 10, zones.GUARD_LIMIT_BYTES >> 10
    assert f"{low} KiB to {high} KiB" in text_of(Probe.BASE)
    _, bits = poison_word(torch.float32, Poison.FINITE)
    value = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    assert float(value) == 2.0**100
    assert CONFIRMATIONS == 3
    assert "three fresh children" in glossary.confirmation(
        find_contract("K-VAL-01/sum")
    )


def test_a_page_explains_its_signs_and_probes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["contracts", "show", "C-PRC-01/matmul", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)["contract"]
    explained = document["glossary"]
    assert set(explained["signs"]) == set(SIGNS)
    assert "(4, 4096)" in explained["probes"]["friendly"]
    for format in ("text", "markdown"):
        assert main(["contracts", "show", "C-PRC-01/matmul", "--format", format]) == 0
        page = " ".join(capsys.readouterr().out.split())
        assert "gamma(n, u) = n u / (1 - n u)" in page
        assert "(4, 4096)" in page


def test_the_pages_of_classes_name_the_share_of_second_calls() -> None:
    texts = [*(c.procedure for c in ATTRIBUTION), glossary.drawing()]
    said = re.findall(r"[Oo]ne in (\d+) ", " ".join(texts))
    assert len(said) >= 5
    assert set(said) == {str(SECOND_CALL_SHARE)}
