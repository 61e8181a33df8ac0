"""Proofs on disk, and as text."""

import os
from pathlib import Path

from kfuzz.core.event import KernelProof, Proven, ProvenProperty
from kfuzz.report.promises import proof_lines, proof_summary
from kfuzz.store.files import keep_proof, kept_proof

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


def test_a_broken_premise_withdraws_what_holds_for_all_sizes_alone() -> None:
    left = PROOF.without("a launch of copy breaks its premise: grid.1 = 1")
    assert left.count(Proven.ALL_SIZES) == 0
    assert left.count(Proven.REFUTED) == 1
    assert "grid.1 = 1" in proof_summary(left)
