"""Hand-made conformance statements."""

from dataclasses import replace
from typing import Any

from kfuzz.core.finding import Fingerprint
from kfuzz.core.verdict import Graded, Kind, Soundness, State, Verdict
from kfuzz.features.lab.grade.statement import (
    Fault,
    Instrument,
    KernelStatement,
    Statement,
)
from kfuzz.features.lab.grade.statement_text import LEVELS

CLASSES = tuple(name for level in LEVELS for name in level.classes)
WELL = Graded(Verdict.CONFORMS, 20_000, 3, Soundness.SOUND)


def kernel(name: str = "softmax", **changes: Any) -> KernelStatement:
    """Return a kernel that every class binds and every calibrated case supports."""
    made = KernelStatement(
        kernel=f"mine.py::{name}",
        name=name,
        operator="softmax",
        source="sha256:" + "ab" * 32,
        claims={},
        bound="interval: |y - r| <= E; n roundings",
        cases=20_000,
        worst_ratio=0.5,
        contracts=dict.fromkeys(CLASSES, WELL),
    )
    return replace(made, **changes)


def but(made: KernelStatement, **graded: Graded | None) -> KernelStatement:
    """Return a kernel with other verdicts: C_EXC_01=…; None where it does not bind."""
    contracts = dict(made.contracts)
    for name, value in graded.items():
        id = name.replace("_", "-")
        if value is None:
            del contracts[id]
        else:
            contracts[id] = value
    return replace(made, contracts=contracts)


def statement(*kernels: KernelStatement, **changes: Any) -> Statement:
    """Return a statement of a long run on the CPU."""
    made = Statement(
        device="cpu",
        fingerprint=Fingerprint(torch="2.13.0", kfuzz="0.1.0", device="a processor"),
        seed=7,
        max_cases=20_000,
        max_time=None,
        elapsed_s=12.5,
        classes=CLASSES,
        kernels=kernels or (kernel(),),
        instruments=(Instrument.GUARD_ZONES,),
    )
    return replace(made, **changes)


def fault(contract: str = "C-EXC-01", **changes: Any) -> Fault:
    made = Fault(
        id=f"softmax-{contract}-1a2b3c4d",
        contract=contract,
        kind=Kind.NAN_MISSING,
        state=State.CONFIRMED,
        message="y[0] = 0, expected nan",
    )
    return replace(made, **changes)
