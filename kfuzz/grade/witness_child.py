"""The child's side of a calibration: searches the witnesses that it is sent."""

from collections.abc import Callable
from typing import Any

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.witnesses.roster import Entry
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.calibration import Role
from kfuzz.core.codec import decode, encode
from kfuzz.core.depth import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.evaluation import worker
from kfuzz.evaluation.evaluator import Bench, setting_of
from kfuzz.evaluation.functional import passes_functional
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.grade.witness_search import Found, outcome_of, search

Message = dict[str, Any]


def answer(message: Message) -> Message:
    """Run the functional test of a witness, then search it.

    With 0 cases nothing is searched.
    """
    witness = decode(Witness, message["witness"], "witness")
    role, backend = message["place"]
    entry, device = Entry(witness, Role(role), backend), message["device"]
    kernel = entry.load()
    functional = _passes(witness, device)
    sizes = BACKENDS[backend].limits.sizes
    bench = Bench(
        kernel,
        setting_of(device, sizes, [c.id for c in ATTRIBUTION]),
    )

    def judge(case: Case, depth: Depth) -> CaseReport:
        if bench.spent:
            return CaseReport({}, error="the device answers no more")
        return bench.judge(case, depth)

    found = Found()
    if message["cases"]:
        found = search(
            kernel, judge, backend=backend, cases=message["cases"],
            seed=message["seed"],
            until=(witness.contract,) if witness.contract else None,
        )  # fmt: skip
    outcome = outcome_of(entry, found, functional=functional)
    return {
        "outcome": encode(outcome),
        "functional": functional,
        "spent": bench.spent,
    }


def _passes(witness: Witness, device: str) -> bool:
    """Whether a kernel passes the functional test; what raises does not."""
    try:
        return passes_functional(witness, device=device)
    except Exception:
        return False


def serve() -> Callable[[Message], Message]:
    """Return the handler of a fresh child."""
    worker.serve()  # one thread, as every child
    return answer
