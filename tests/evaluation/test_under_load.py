"""C-ORD-02 and K-LIV-01 on a GPU, judged on evidence made by hand."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.classes.order import unrepeatable
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import UNDER_LOAD, miss_of
from kfuzz.contracts.suite import judge
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Failure, Kind
from kfuzz.evaluation import evaluator as bench_module
from kfuzz.evaluation.diagnosis import CaseCalls, Step, judge_explained
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.evaluation.probes import repeats as batches
from kfuzz.evaluation.probes.repeats import _COMPANY, THOROUGH_ROUNDS, with_loads
from kfuzz.execution.calls import results as environment
from kfuzz.execution.calls import results as raised
from kfuzz.execution.calls import results as run
from kfuzz.execution.device.backends import DeviceBackend
from kfuzz.execution.device.surroundings import Company, amount
from kfuzz.numerics.run import Run, UncheckedLaunch
from tests.helpers.judged_cases import bench_of

SHAPE = (4, 8)


def judge_fully(evidence: Evidence) -> Failure | None:
    """Return the failure of a case under all classes."""
    return judge_explained(evidence, CLASSES)[2]


def case_of(seed: int) -> Case:
    fill = Fill("randn", seed)
    return Case({"x": TensorSpec(SHAPE, ("d0", "d1"), "float32", fill=fill)})


CASE = case_of(2)
HELD, COPIES = Probe.BESIDE_HELD, Probe.BESIDE_COPIES


def viewed(case: Case = CASE, **claims: object) -> Evidence:
    """Return the base run of a kernel that is right."""
    evaluator = bench_of(ops.exp, torch.exp, **claims)
    view, _ = evaluator.caller(case).evidence(Derived(case, evaluator.values(case)))
    return view


def changed(run: Run, change: Callable[[Tensor], None]) -> Run:
    y = run.outputs["y"].clone()
    change(y)
    return replace(run, outputs={"y": y})


def another_bit(y: Tensor) -> None:
    y.view(torch.int32)[0, 3] += 1


def wrong(y: Tensor) -> None:
    y[1, 2] = -7.0


def with_runs(view: Evidence, runs: Mapping[Probe, Run]) -> Evidence:
    every = dict.fromkeys(UNDER_LOAD, view.base)
    return replace(view, runs={**view.runs, **every, **runs})


def test_without_repeats_nothing_is_said() -> None:
    view = viewed()
    assert unrepeatable(view) is None
    assert "C-ORD-02" not in judge(view, CLASSES)[0]


def test_another_bit_under_load_is_charged() -> None:
    view = viewed()
    failure = judge_fully(with_runs(view, {HELD: changed(view.base, another_bit)}))
    assert failure is not None
    assert (failure.contract, failure.kind) == ("C-ORD-02", Kind.NONDETERMINISTIC)
    assert (failure.output, failure.index, failure.elements) == ("y", (0, 3), 1)
    assert "another kernel holds" in failure.message


def test_other_bits_need_a_promise() -> None:
    for claims in ({"determinism": "none"}, {"store": "stochastic"}):
        view = viewed(**claims)
        runs = {HELD: changed(view.base, another_bit)}
        assert unrepeatable(with_runs(view, runs)) is None


@pytest.mark.parametrize("determinism", ["bitwise", "run_to_run", "none"])
def test_a_miss_at_times_is_charged_under_any_declaration(determinism: str) -> None:
    view = viewed(determinism=determinism)
    failure = judge_fully(with_runs(view, {COPIES: changed(view.base, wrong)}))
    assert failure is not None
    assert (failure.contract, failure.kind) == ("C-ORD-02", Kind.NONDETERMINISTIC)
    assert failure.index == (1, 2)
    assert "in 1 of 4 equal calls" in failure.message
    assert "-7" in failure.message


def test_a_miss_of_every_call_is_another_contract_s() -> None:
    view = viewed()
    missing = changed(view.base, wrong)
    # Some other bit besides: a wrong formula may add its terms in any order.
    runs = dict.fromkeys((Probe.BASE, *UNDER_LOAD), missing)
    runs[HELD] = changed(missing, another_bit)
    extended = with_runs(view, runs)
    assert miss_of(extended) is not None
    assert unrepeatable(extended) is None
    failure = judge_fully(extended)
    assert failure is not None
    assert failure.contract != "C-ORD-02"


def test_a_draw_of_a_stochastic_store_is_no_race() -> None:
    view = viewed(store="stochastic")
    assert unrepeatable(with_runs(view, {HELD: changed(view.base, wrong)})) is None


def test_nans_are_equal_whatever_their_payload() -> None:
    spec = TensorSpec(SHAPE, ("d0", "d1"), "float32", fill=Fill("nan_one", 2))
    nans = torch.full(SHAPE, float("nan")).numpy().tobytes()
    spec = replace(spec, fill=None, values=nans)
    view = viewed(Case({"x": spec}))
    assert bool(view.base.outputs["y"].isnan().all())
    runs = {HELD: changed(view.base, another_bit)}
    assert unrepeatable(with_runs(view, runs)) is None


def test_a_kernel_that_promises_nothing_cannot_conform() -> None:
    verdicts, failure = judge(with_runs(viewed(determinism="none"), {}), CLASSES)
    assert failure is None
    assert "C-ORD-02" not in verdicts


def left(name: str, *, certain: bool) -> UncheckedLaunch:
    return UncheckedLaunch(name, "what it means", certain)


def test_a_launch_that_failed_is_charged_though_the_result_is_right() -> None:
    view = viewed()
    run = replace(view.base, unchecked=left("cudaErrorX", certain=True))
    failure = judge_fully(replace(view, runs={Probe.BASE: run}))
    assert failure is not None
    assert (failure.contract, failure.kind) == ("K-LIV-01", Kind.UNCHECKED_LAUNCH)
    assert failure.detail == "cudaErrorX"
    assert "what it means" in failure.message


def test_an_invalid_argument_is_charged_with_a_wrong_result_only() -> None:
    view = viewed()
    query = left("cudaErrorInvalidValue", certain=False)
    right = replace(view.base, unchecked=query)
    assert judge_fully(replace(view, runs={Probe.BASE: right})) is None
    failure = judge_fully(replace(view, runs={Probe.BASE: changed(right, wrong)}))
    assert failure is not None
    assert failure.kind is Kind.UNCHECKED_LAUNCH


def benched(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Tensor], Tensor]
) -> Evaluator:
    """Return an evaluator on the CPU whose device has surroundings."""
    met = MagicMock(lacking={}, take_unchecked=lambda: None)
    for module in (run, environment, raised, bench_module):
        monkeypatch.setattr(module, "surroundings_of", lambda device: met)
    return bench_of(ops.exp, function)


def test_a_device_lost_in_a_further_run_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = itertools.count()

    def lose(view: Evidence, calls: CaseCalls) -> Evidence:
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    def called(x: Tensor) -> Tensor:
        next(calls)
        return torch.exp(x)

    evaluator = benched(monkeypatch, called)
    lost = ((Step(batches.BATCHES_STEP.probes, lose),),)
    monkeypatch.setattr(bench_module, "FURTHER", lost)
    with pytest.raises(RuntimeError):
        evaluator.judge(CASE, Depth.FULL)  # the device is well: kfuzz is at fault
    monkeypatch.setattr(bench_module, "is_lost", lambda device: True)
    report = evaluator.judge(CASE, Depth.FULL)
    assert evaluator.spent
    assert (report.failure, report.verdicts) == (None, {})
    assert "an illegal memory access" in str(report.error)


def test_a_device_that_ails_after_an_exception_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(x: Tensor) -> Tensor:
        raise ValueError("no")

    evaluator = benched(monkeypatch, raising)
    monkeypatch.setattr(DeviceBackend, "ailment", lambda *_: "it does nothing")
    evaluator.judge(CASE, Depth.BASE)
    assert evaluator.spent


def test_company_that_cannot_be_had_decides_nothing() -> None:
    view, asked = viewed(), []

    def repeat(company: Company, delay: int) -> Run:
        asked.append(company)
        if company is Company.HELD:
            return Run(unreliable="no compiler")
        return view.base

    extended = with_loads(view, repeat, thorough=False)
    assert asked == list(_COMPANY.values())
    assert HELD not in extended.runs
    assert COPIES in extended.runs
    assert "C-ORD-02" not in judge(extended, CLASSES)[0]


def delays_met(case: Case) -> list[int]:
    """Return the delays of all repeats of a case that a finding hangs on."""
    view, met = viewed(case), list[int]()

    def repeat(company: Company, delay: int) -> Run:
        met.append(delay)
        return view.base

    with_loads(view, repeat, thorough=True)
    return met


def test_delays_follow_from_the_recipe_which_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = delays_met(CASE)
    assert len(set(drawn)) == THOROUGH_ROUNDS
    assert delays_met(CASE) == drawn != delays_met(case_of(3))
    evaluator = bench_of(ops.exp, torch.exp)
    assert evaluator.pin(CASE).delays is None  # nothing runs beside a call on the CPU
    gpu = replace(evaluator._backend.has, asynchronous=True)
    monkeypatch.setattr(evaluator, "_backend", MagicMock(has=gpu))
    pinned = evaluator.pin(CASE)
    again = decode(Case, encode(pinned))
    assert again == pinned
    assert delays_met(again) == drawn


def test_a_delay_decides_how_much_is_held_and_for_how_long() -> None:
    assert amount(0) == (0.5, 4)
    made = [amount(delay) for delay in range(56)]
    assert {part for part, _ in made} == {n / 8 for n in range(1, 8)}
    assert {times for _, times in made} == set(range(1, 9))
