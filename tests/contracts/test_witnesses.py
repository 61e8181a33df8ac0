import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.binding import REGISTRY
from kfuzz.contracts.suite import select_classes
from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.functional import passes_functional
from tests.helpers.kernel_draws import drawn
from tests.helpers.minima import MINIMA

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BUDGET = SIZE_BUDGETS["cuda" if CUDA else "interpret"]

CONFORMING = [w for w in everywhere().values() if w.conforming]
# Those that end or stall their process are judged where processes are tested.
FATAL = [w for w in everywhere().values() if w.contract == "K-LIV-01"]
NATIVE = [w for w in everywhere().values() if w.backends == ("cpu",)]
FATAL += NATIVE
BACKEND = "cuda" if CUDA else "interpret"
VIOLATING = [
    w
    for w in everywhere().values()
    if not w.conforming and w not in FATAL and BACKEND in w.backends
]
# Those that are no pairs of a correct kernel and its fault have tables of their own.
OWN_TABLES = frozenset(
    {
        "classes.cheats", "classes.baselines", "backward.faults",
        "backward.gradients", "incidents",
    }
)  # fmt: skip


def named(witnesses: list[Witness], *, every: int = 1) -> object:
    """Parametrise by witnesses, all but one of so many marked slow."""
    chosen = [
        w if i % every == 0 else pytest.param(w, marks=pytest.mark.slow)
        for i, w in enumerate(witnesses)
    ]
    return pytest.mark.parametrize("witness", chosen, ids=lambda w: w.kernel)


def judged(witness: Witness, case: Case, depth: Depth = Depth.FULL) -> CaseReport:
    setting = setting_of(DEVICE, BUDGET, select_classes((), ()))
    return Evaluator(witness.load(), setting).judge(case, depth)


@named(list(everywhere().values()), every=3)
def test_every_witness_passes_the_plain_functional_test(witness: Witness) -> None:
    device = "cpu" if witness in NATIVE else DEVICE
    assert passes_functional(witness, device=device)


@pytest.mark.slow
@named(VIOLATING, every=3)
def test_a_fault_is_charged_to_its_class_and_correct_twins_pass_there(
    witness: Witness,
) -> None:
    kernel = witness.load()
    for case in drawn(kernel, 300, "interpret"):
        if judged(witness, case, Depth.SEARCH).failure is None:
            continue
        failure = judged(witness, case).failure
        if failure is not None and failure.contract == witness.contract:
            break
    else:
        pytest.fail("nothing was found")
    name, scalars = kernel.operator.name, kernel.operator.scalars
    case = replace(
        case, scalars={n: p.default for n, p in scalars.items()} | case.scalars
    )
    for twin in (everywhere()[f"triton_{name}"], everywhere()[f"torch_{name}"]):
        if twin.load().operator.accepts(case, twin.load().declaration):
            report = judged(twin, case)
            assert report.failure is None, report.failure
            assert report.refusal is None


# Torch warns of variances of one element.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:var")
@named(CONFORMING, every=20)
def test_conforming_witnesses_conform_over_layouts_and_families(
    witness: Witness,
) -> None:
    decided = 0
    # Elements that share memory cannot be overwritten.
    inplace = witness.load().declaration.inplace
    made = [
        case
        for case in drawn(witness.load(), 25, "interpret")
        if not any(0 in (case.tensors[n].strides or (1,)) for n in inplace)
    ]
    assert made
    for case in made:
        report = judged(witness, case, Depth.SEARCH)
        assert report.failure is None, (report.failure, case)
        assert report.refusal is None, case
        assert report.error is None
        decided += Verdict.CONFORMS in report.verdicts.values()
    assert decided >= len(made) * 0.9


def test_every_bound_witness_is_listed() -> None:
    folder = Path(__file__).parents[2] / "contracts" / "witnesses"
    bound = set()
    for path in folder.rglob("*.py"):
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        if name in OWN_TABLES or name.startswith(("gpu", "planted")):
            continue
        made = importlib.import_module(f"kfuzz.contracts.witnesses.{name}")
        bound |= {b.name for b in REGISTRY.get(made.__name__, ())}
    assert bound == set(everywhere())


def test_the_fatal_ones_are_fatal_where_no_power_of_two_lies() -> None:
    from kfuzz.contracts.witnesses.relu import unlucky

    fatal = [w for w in FATAL if w not in NATIVE and "interpret" in w.backends]
    assert [MINIMA[w.kernel].elements for w in fatal] == [3, 3]
    assert unlucky(torch.zeros(3))
    assert not any(unlucky(torch.zeros(2**p)) for p in range(13))
