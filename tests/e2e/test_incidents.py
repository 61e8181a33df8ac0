"""The three incidents of `corpus/`: they still fail as stored, and are explained."""

import json
from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.witness import Witness, declared_in
from kfuzz.core.verdict import Kind, State
from kfuzz.engine.config import ReplayConfig, ReplayOutcome
from kfuzz.engine.replay import replay
from kfuzz.store.corpus import Corpus, Stored
from tests.helpers.functional import passes_functional
from tests.helpers.minima import MINIMA

ROOT = Path(__file__).parents[2]
CORPUS = Corpus(ROOT / "corpus")
SIGNATURES = {
    "incident_precision_coercion": ("C-PRC-01", Kind.VALUE),
    "incident_reward_hacking": ("C-CMP-03", Kind.VALUE),
    "incident_silent_index": ("C-EXC-02", Kind.INDEX_ACCEPTED),
}


def stored() -> list[Stored]:
    entries = [entry for entry in CORPUS.entries() if isinstance(entry, Stored)]
    return [e for e in entries if e.finding.signature.kernel in SIGNATURES]


def test_each_incident_is_one_confirmed_finding_under_its_clause() -> None:
    found = {
        e.finding.signature.kernel: (
            e.finding.signature.contract, e.finding.signature.kind,
        )
        for e in stored()
    }  # fmt: skip
    assert found == SIGNATURES
    assert {e.finding.state for e in stored()} == {State.CONFIRMED}
    assert {e.finding.target.file for e in stored()} == {
        "contracts/witnesses/incidents.py"
    }
    assert CORPUS.check() == []


@pytest.mark.parametrize("witness", declared_in("incidents"), ids=lambda w: w.kernel)
def test_each_incident_passes_a_functional_test_and_is_small(witness: Witness) -> None:
    (found,) = (e.finding for e in stored() if e.finding.target.name == witness.kernel)
    assert found.signature.contract == witness.contract
    least = MINIMA[witness.kernel]
    assert found.input_elements <= least.elements
    assert (found.nonzero_elements or 0) <= least.nonzero
    assert passes_functional(witness)


@pytest.mark.parametrize("kernel", SIGNATURES)
def test_each_incident_has_a_page_that_names_its_clause_and_signature(
    kernel: str,
) -> None:
    page = (ROOT / "corpus" / kernel / "README.md").read_text()
    contract, kind = SIGNATURES[kernel]
    for part in ("What happened", "The clause", "The signature", contract, f"`{kind}`"):
        assert part in page


def test_each_incident_fails_as_stored() -> None:
    import threading

    config = ReplayConfig(root=ROOT, corpus=CORPUS.root, times=1)
    results = list(replay(stored(), config, stop=threading.Event()))
    outcomes = {r.finding.signature.kernel: r.outcome for r in results if r.finding}
    assert outcomes == dict.fromkeys(SIGNATURES, ReplayOutcome.FAILS)


def test_stored_incidents_name_no_machine() -> None:
    for entry in stored():
        text = (entry.path / "finding.json").read_text()
        assert str(Path.home()) not in text
        assert str(ROOT) not in text
        assert json.loads(text)["format"] == 1
