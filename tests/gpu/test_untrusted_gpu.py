"""Foreign code on a GPU: contained, late, endless, astray, greedy."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.errors import End
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.sandbox.contain import WAYS, Limits
from kfuzz.features.judge.sandbox.sandbox import RemoteKernel, Sandbox, zygote_for
from kfuzz.features.judge.sandbox.wire import Entry
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.judged_cases import x_case

pytestmark = pytest.mark.gpu

FILE = Path(__file__).with_name("untrusted_candidates.py")
DEVICE = "cuda:0"
LIMITS = Limits(wall_seconds=5.0, first_seconds=60.0, device_share=0.2)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with zygote_for(DEVICE) as zygote:
        yield zygote


def sandbox(zygote: Zygote, build: str, **more) -> Sandbox:
    more.setdefault("limits", LIMITS)
    return Sandbox(Entry(FILE, build), device=DEVICE, zygote=zygote, **more)


def x() -> torch.Tensor:
    return torch.arange(-500.0, 524.0, device=DEVICE).reshape(32, 32)


def assert_honest(box: Sandbox) -> None:
    called = box.call([x()])
    assert called.returned is not None, (called, box.containment)
    assert called.returned.value.device == torch.device(DEVICE)
    assert torch.equal(called.returned.value, torch.relu(x()))
    assert not called.returned.late


@pytest.mark.parametrize(
    "ways",
    [WAYS, ("landlock",), ()],
    ids=["all", "landlock", "watched"],
)
def test_an_honest_kernel_answers_however_it_is_contained(
    zygote: Zygote, ways: tuple[str, ...]
) -> None:
    with sandbox(zygote, "honest", ways=ways) as box:
        assert_honest(box)
        for measure in box.containment.values():  # for whoever runs this with -s
            sys.stdout.write(f"{measure.held} {measure.name}: {measure.text}\n")
        again = box.call([x() * 2])
        assert again.returned is not None, again
        assert any("relu_kernel" in name for name in again.returned.words["kernels"]), (
            again
        )


def test_work_on_another_stream_is_late_unless_it_is_joined(zygote: Zygote) -> None:
    for build, late in (("late", True), ("joined", False)):
        with sandbox(zygote, build) as box:
            box.call([x()])  # creating a stream takes longer than a kernel
            called = box.call([x()])
            assert called.returned is not None, called
            assert called.returned.late is late, build


def test_an_endless_kernel_is_a_hang_and_the_device_goes_on(zygote: Zygote) -> None:
    limits = replace(LIMITS, first_seconds=10.0)
    with sandbox(zygote, "endless", limits=limits) as box:
        called = box.call([x()])
        assert called.ended is not None, called
        assert called.ended.end is End.HANG
    with sandbox(zygote, "honest") as box:
        assert_honest(box)


def test_memory_of_the_device_that_runs_out_is_given_back(zygote: Zygote) -> None:
    with sandbox(zygote, "greedy") as box:
        called = box.call([x()])
        assert called.raised is not None, called
        assert called.raised.memory, called
    torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    with sandbox(zygote, "honest") as box:
        assert_honest(box)


def judged(zygote: Zygote, build: str, case: Case) -> CaseReport:
    with sandbox(zygote, build) as box:
        remote = RemoteKernel(box)
        bound = kernel(ops.relu, name=f"{build}_{id(remote)}")(remote)
        setting = setting_of(DEVICE, SIZE_BUDGETS["cuda"], CLASSES)
        return Evaluator(bound, setting).judge(case, Depth.FULL)


def test_a_bench_in_the_campaign_judges_it(zygote: Zygote) -> None:
    case = x_case("randn", (33, 65), strides=(80, 1), offset=3)
    report = judged(zygote, "honest", case)
    assert report.failure is None, report
    assert not report.error
    assert report.verdicts["K-VAL-01"] == "conforms"
    assert report.verdicts["K-MEM-01"] == "conforms"


@pytest.mark.parametrize(
    ("build", "contract", "kind"),
    [
        ("astray", "K-LIV-01", Kind.DEVICE_FAULT),
        ("on_the_cpu", "K-MET-01", Kind.WRONG_DEVICE),
        ("past_the_end", "K-MEM-01", Kind.WRITE_OUTSIDE),
    ],
)
def test_a_wrong_one_is_charged(
    zygote: Zygote, build: str, contract: str, kind: Kind
) -> None:
    report = judged(zygote, build, x_case("randn", (6, 7)))
    assert report.failure is not None, report
    assert (report.failure.contract, report.failure.kind) == (contract, kind), report
    assert torch.ones(4, device=DEVICE).sum().item() == 4  # this process's is sound
