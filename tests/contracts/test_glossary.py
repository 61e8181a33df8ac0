"""`kfuzz contracts show`: the numbers on its pages are the code's."""

import json
import re

import pytest

from kfuzz.app import main
from kfuzz.contracts import glossary, prose
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.language import SECOND_CALL_SHARE, Probe
from kfuzz.contracts.suite import every_contract, find_contract

SIGNS = dict(glossary.signs(find_contract("C-PRC-01/matmul")))


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


def test_a_page_explains_its_signs_and_probes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["contracts", "show", "C-PRC-01/matmul", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)["contract"]
    explained = document["glossary"]
    assert set(explained["signs"]) == set(SIGNS)
    assert "(4, 4096)" in explained["probes"]["friendly"]
    assert main(["contracts", "show", "C-PRC-01/matmul"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "gamma(n, u) = n u / (1 - n u)" in page
    assert "(4, 4096)" in page


def test_the_pages_of_classes_name_the_share_of_second_calls() -> None:
    texts = [*(c.procedure for c in ATTRIBUTION), glossary.drawing()]
    said = re.findall(r"[Oo]ne in (\d+) ", " ".join(texts))
    assert len(said) >= 5
    assert set(said) == {str(SECOND_CALL_SHARE)}
