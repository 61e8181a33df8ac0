"""Proofs on disk, and as text."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.event import KernelProof, Proven, ProvenProperty
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from kfuzz.engine.config import RunConfig
from kfuzz.features.prove import search
from kfuzz.report.promises import proof_lines, proof_summary
from kfuzz.store.corpus import Corpus
from kfuzz.store.files import keep_proof, kept_proof
from tests.helpers.findings import finding

PROOF = KernelProof(
    "k.py::copy",
    (
        ProvenProperty("loads in bounds", Proven.ALL_SIZES),
        ProvenProperty(
            "stores in bounds", Proven.REFUTED, "a store may leave y", 5, finding="c-1"
        ),
        ProvenProperty(
            "no 32-bit overflow", Proven.OPEN, "not understood: tt.x (line 3)"
        ),
    ),
    {"copy": ("grid.0 = cdiv(n, BLOCK)",)},
    variants=2,
)


def test_a_proof_is_kept_as_it_is(tmp_path: Path) -> None:
    keep_proof(tmp_path, PROOF)
    assert kept_proof(tmp_path, "k.py::copy") == PROOF
    assert kept_proof(tmp_path, "k.py::other") is None


def test_what_is_kept_and_malformed_is_no_proof(tmp_path: Path) -> None:
    keep_proof(tmp_path, PROOF)
    (file,) = tmp_path.glob(".proofs/*")
    for text in ('{"format": 1, "proof": {"kernel": 3}}', "[" * 100_000, "[1]", ""):
        file.write_text(text)
        assert kept_proof(tmp_path, "k.py::copy") is None
    file.unlink()
    os.mkfifo(file)
    assert kept_proof(tmp_path, "k.py::copy") is None


def test_each_property_and_premise_is_a_line() -> None:
    lines = list(proof_lines(PROOF, premises=True))
    assert lines[0].split("  ")[-1].strip() == "proved for all sizes"
    assert "refuted: line 5: a store may leave y (c-1)" in lines[1]
    assert "open: not understood: tt.x (line 3)" in lines[2]
    assert lines[-2:] == ["premises of copy:", "  grid.0 = cdiv(n, BLOCK)"]


def test_the_constants_that_a_proof_holds_for_are_a_line() -> None:
    known = [f"constants: B={2**i}, ORDER=(1, 0), types=*f{i}" for i in range(6)]
    proof = replace(PROOF, premises={"copy": ("n >= 1", *known)})
    assert list(proof_lines(proof, premises=True))[-2:] == [
        "  n >= 1",
        "  constants: 6 combinations of B=1 to 32 (6 values); ORDER=(1, 0); "
        "types=*f0, *f1, *f2, *f3, *f4, *f5",
    ]


def test_what_a_finding_contradicts_is_not_called_proved() -> None:
    def of(kind: Kind) -> Finding:
        one = finding()
        return replace(one, signature=replace(one.signature, kind=kind))

    line = next(proof_lines(PROOF.beside([of(Kind.READ_OUTSIDE)])))
    assert "proved" not in line
    assert of(Kind.READ_OUTSIDE).id in line
    assert PROOF.beside([of(Kind.UNWRITTEN)]) == PROOF


def test_a_run_holds_its_proof_against_stored_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = finding(kernel="copy", target=Target("k.py", "copy"))
    of = replace(one.signature, kind=Kind.READ_OUTSIDE)
    Corpus(tmp_path).save(replace(one, signature=of))
    watched: list[Case] = []
    proving = SimpleNamespace(
        enough=lambda: None,
        outcome=lambda *_, **__: SimpleNamespace(proof=PROOF),
        watch=lambda _, cases: watched.extend(cases),
        watched=lambda *_, **__: (len(watched), ""),
    )
    monkeypatch.setattr(search, "Proving", lambda *_, **__: proving)
    kernel: Any = SimpleNamespace(
        node_id="k.py::copy", tried={}, findings={},
        loaded=SimpleNamespace(kernel=SimpleNamespace(name="copy")),
    )  # fmt: skip
    config = RunConfig(("k.py",), root=tmp_path, corpus=tmp_path)
    proof = search.BesideSearch(config).proof(kernel, threading.Event())
    assert proof is not None
    assert proof.count(Proven.ALL_SIZES) == 0
    assert watched == [one.case]
    assert kept_proof(tmp_path, "k.py::copy") == proof


def test_a_run_says_why_a_proof_that_it_asks_for_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proof(**fields: Any) -> KernelProof | None:
        config = RunConfig(("k.py",), root=tmp_path, corpus=tmp_path, **fields)
        proofs = search.prover(config)
        return proofs and proofs.proof(kernel, threading.Event())

    none = SimpleNamespace(
        enough=lambda: None, outcome=lambda *_, **__: None, failed=""
    )
    monkeypatch.setattr(search, "Proving", lambda *_, **__: none)
    kernel: Any = SimpleNamespace(node_id="k.py::copy")
    keep_proof(tmp_path, PROOF)
    few = Budget(max_time=30.0)
    assert proof(budget=few) is None
    late = proof(budget=few, prove=True)
    assert late is not None
    assert "nothing proved: it came too late: `kfuzz prove`" in proof_summary(late)
    alone = proof(prove=True, isolate="none")
    assert alone is not None
    assert "nothing proved: --isolate none" in proof_summary(alone)
    monkeypatch.setattr(search, "installed", lambda: False)
    unsolved = proof(prove=True)
    assert unsolved is not None
    assert "pip install 'kfuzz[prove]'" in proof_summary(unsolved)
    # What was proved before holds on.
    assert kept_proof(tmp_path, "k.py::copy") == PROOF


def test_what_is_proved_of_some_layouts_says_so() -> None:
    some = replace(PROOF, layouts=("x is contiguous",), watched=5, unwatched=2)
    line = next(proof_lines(some))
    assert line.endswith("proved for all sizes, where x is contiguous")
    assert proof_summary(some) == (
        "1 of 3 properties proved for all sizes, where x is contiguous, 1 refuted, 1 "
        "open: `kfuzz prove k.py::copy` prints which, and why; time was up before the "
        "premises were checked on 2 of 7 structures of inputs: a longer --max-time "
        "checks them"
    )


def test_a_broken_premise_withdraws_what_holds_for_all_sizes_alone() -> None:
    left = PROOF.without("a launch of copy breaks its premise: grid.1 = 1")
    assert left.count(Proven.ALL_SIZES) == 0
    assert left.count(Proven.REFUTED) == 1
    assert "grid.1 = 1" in proof_summary(left)
