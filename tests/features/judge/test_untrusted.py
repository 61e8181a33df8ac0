"""Foreign code in contained children, and the campaign that outlives its attacks."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.errors import End
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.sandbox import contain
from kfuzz.features.judge.sandbox.contain import MIB, Limits
from kfuzz.features.judge.sandbox.sandbox import RemoteKernel, Sandbox, zygote_for
from kfuzz.features.judge.sandbox.wire import Entry
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.judged_cases import x_case

HOSTILE = Path(__file__).parents[2] / "helpers" / "hostile_candidates.py"
LIMITS = Limits(
    memory=1024 * MIB,
    wall_seconds=20.0,
    first_seconds=20.0,
    cpu_seconds=20.0,
    processes=8,
    scratch_bytes=32 * MIB,
    output_bytes=4 * MIB,
)
ALL = contain.WAYS
BRIEF = replace(LIMITS, wall_seconds=0.5, first_seconds=0.5)
WAYS = {
    "all": ALL,
    "landlock": ("landlock",),
    "watched": (),
    "namespaces": ("namespaces",),
}
SHAPE = (3, 5)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    os.environ["KFUZZ_TEST_SECRET"] = "SECRET"
    with zygote_for("cpu", output=lambda piece: None) as zygote:
        yield zygote
    del os.environ["KFUZZ_TEST_SECRET"]


def sandbox(
    zygote: Zygote, build: str, path: Path = HOSTILE, way: str = "all", **more
) -> Sandbox:
    limits = more.pop("limits", LIMITS)
    return Sandbox(
        Entry(path, build, **more), device="cpu", limits=limits,
        ways=WAYS[way], zygote=zygote,
    )  # fmt: skip


def data() -> Tensor:
    return torch.arange(15.0).reshape(SHAPE) - 7


@pytest.fixture(scope="module")
def neighbour(zygote: Zygote) -> Iterator[Callable[[], bool]]:
    """Whether an honest kernel beside all attacks goes on being judged right."""
    with sandbox(zygote, "honest") as box:

        def works() -> bool:
            called = box.call([data()])
            assert box.used == 1
            return called.returned is not None and torch.equal(
                called.returned.value, torch.relu(data())
            )

        yield works


@pytest.mark.slow
@pytest.mark.parametrize("way", list(WAYS))
def test_an_honest_kernel_answers_however_it_is_contained(
    zygote: Zygote, way: str
) -> None:
    with sandbox(zygote, "honest", way=way) as box:
        for scale in (1, -2):
            x = data() * scale
            called = box.call([x])
            assert called.returned is not None, called
            assert torch.equal(called.returned.value, torch.relu(x))
            assert not called.returned.late
            assert called.returned.words["operators"] == ("aten::relu",)
        assert box.used == 1


def test_an_honest_kernel_may_run_programs_and_write_to_its_folders(
    zygote: Zygote,
) -> None:
    with sandbox(zygote, "opens_a_shell") as box:
        called = box.call([data()])
        assert called.returned is not None, called
        assert torch.equal(called.returned.value, torch.relu(data()))
        assert called.returned.words["operators"] == ("aten::relu", "aten::mul")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["all", "watched"])
@pytest.mark.parametrize(
    ("build", "ends"),
    [
        ("kills_itself", {End.CRASH}),
        ("takes_memory", {End.MEMORY, None}),
        ("takes_shared_memory", {End.MEMORY, End.PROCESSES}),
        ("fills_the_disk", {End.DISK, None}),
        ("prints_much", {End.OUTPUT}),
        ("forks", {End.PROCESSES}),
    ],
)
def test_what_takes_too_much_is_ended(
    zygote: Zygote,
    neighbour: Callable[[], bool],
    build: str,
    ends: set[End | None],
    way: str,
) -> None:
    with sandbox(zygote, build, way=way) as box:
        called = box.call([data()])
        assert called.returned is None
        assert (called.ended.end if called.ended else None) in ends, called
        if called.ended is None:
            assert called.raised is not None
            assert called.raised.memory or called.raised.type == "OSError"
        assert neighbour()


@pytest.mark.parametrize(
    ("build", "end", "detail"),
    [
        ("exits", End.CRASH, "exit code 0"),
        ("closes_everything", End.PROTOCOL, "protocol"),
        ("loops", End.HANG, ""),
        ("announces_a_gigabyte", End.PROTOCOL, "protocol"),
        ("nests", End.PROTOCOL, "protocol"),
        ("lies_beyond", End.PROTOCOL, "protocol"),
        ("lies_about_type", End.PROTOCOL, "protocol"),
    ],
)
def test_what_does_not_answer_is_told_by_its_end(
    zygote: Zygote,
    neighbour: Callable[[], bool],
    build: str,
    end: End,
    detail: str,
) -> None:
    limits = BRIEF if end is End.HANG else LIMITS
    with sandbox(zygote, build, limits=limits) as box:
        called = box.call([data()])
        assert called.ended is not None, called
        assert (called.ended.end, called.ended.detail) == (end, detail), called
        assert neighbour()


@pytest.mark.parametrize(
    "build", ["writes_to_descriptors", "answers_twice", "answers_later"]
)
def test_words_of_its_own_end_it_at_the_latest_at_the_next_call(
    zygote: Zygote, neighbour: Callable[[], bool], build: str
) -> None:
    with sandbox(zygote, build) as box:
        ends = []
        for _ in range(2):
            called = box.call([data()])
            if called.returned is not None:
                assert torch.equal(called.returned.value, torch.relu(data()))
            ends.append(called.ended and called.ended.end)
        assert End.PROTOCOL in ends, ends
        assert neighbour()


@pytest.mark.parametrize(
    ("build", "subject"),
    [
        ("writes_elsewhere", "files"),
        ("reads_its_parents", ""),
        ("signals_others", "other processes"),
        ("connects", "network"),
        ("tells_its_environment", "environment"),
    ],
)
def test_what_lies_outside_is_out_of_reach(
    zygote: Zygote, build: str, subject: str, tmp_path: Path
) -> None:
    copy = tmp_path / HOSTILE.name
    copy.write_text(HOSTILE.read_text())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (tmp_path / "port").write_text(str(listener.getsockname()[1]))
        for way in WAYS:
            with sandbox(zygote, build, copy, way=way) as box:
                if subject and not box.containment[subject].held:
                    continue  # which is told
                called = box.call([data()])
                assert called.returned is not None, (way, called)
                assert not called.returned.value.any(), (way, box.containment)


def test_killing_its_parent_ends_at_most_itself(
    zygote: Zygote, neighbour: Callable[[], bool]
) -> None:
    for way in ("all", "watched"):
        with sandbox(zygote, "kills_its_parent", way=way) as box:
            called = box.call([data()])
            if way == "all" and box.containment["other processes"].held:
                assert called.returned is not None, called
            elif way == "watched":
                assert called.ended is not None, called
                assert called.ended.end is End.CRASH
            assert neighbour()


@pytest.mark.parametrize(
    ("build", "way", "end"),
    [
        ("prints_later", "all", End.OUTPUT),
        ("stops_what_watches_it", "watched", End.CRASH),
        ("outlives_its_parent", "watched", End.CRASH),
    ],
)
def test_what_it_does_between_calls_is_told_by_its_end(
    zygote: Zygote, neighbour: Callable[[], bool], build: str, way: str, end: End
) -> None:
    with sandbox(zygote, build, way=way) as box:
        called = box.call([data()])
        until = time.monotonic() + 5
        while called.ended is None and time.monotonic() < until:
            time.sleep(0.5)  # it does it now
            called = box.call([data()])
        assert called.ended is not None, called
        assert called.ended.end is end, called
        assert neighbour()


def test_a_supervisor_that_others_stop_is_no_deed_of_the_candidate(
    zygote: Zygote,
) -> None:
    with sandbox(zygote, "honest") as box:
        if not box.containment["other processes"].held:
            pytest.skip("a candidate could have stopped it itself")
        assert box.call([data()]).returned is not None
        assert box._kept is not None
        supervisor = box._kept._child.pid
        os.kill(supervisor, signal.SIGSTOP)
        assert box.call([data()]).returned is not None  # as under a profiler
        os.kill(supervisor, signal.SIGCONT)
        time.sleep(1.1)
        assert box.call([data()]).returned is not None
        os.kill(supervisor, signal.SIGSTOP)
        until = time.monotonic() + 10
        while (called := box.call([data()])).ended is None:
            assert called.returned is not None
            assert time.monotonic() < until
            time.sleep(0.3)
        assert called.ended.end is End.UNAVAILABLE, called
        assert box.call([data()]).returned is not None


def test_a_daemon_does_not_outlive_its_child(zygote: Zygote) -> None:
    for way in ("all", "watched"):
        with sandbox(zygote, "leaves_a_daemon", way=way) as box:
            called = box.call([data()])
            assert called.returned is not None, called
        found = subprocess.run(["pgrep", "-f", "sleep 54321.5"], capture_output=True)
        assert not found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("build", ["patches_torch", "follows_every_line"])
def test_patches_inside_do_not_reach_the_bytes_outside(
    zygote: Zygote, neighbour: Callable[[], bool], build: str
) -> None:
    # With its clocks and its isinstance patched the child never answers.
    limits = replace(LIMITS, wall_seconds=3.0, first_seconds=3.0)
    with sandbox(zygote, build, limits=limits) as box:
        x = data()
        for _ in range(2):
            called = box.call([x])
            if build == "patches_torch" and called.returned is not None:
                assert not torch.equal(called.returned.value, torch.relu(data()))
        assert neighbour()


# Judged by a evaluator in this process ---------------------------------------------


CASE = x_case("randn", (6, 7))


def judged(
    zygote: Zygote,
    build: str,
    case: Case = CASE,
    limits: Limits = LIMITS,
    depth: Depth = Depth.FULL,
    **claims: object,
) -> tuple[CaseReport, RemoteKernel]:
    with sandbox(zygote, build, limits=limits) as box:
        remote = RemoteKernel(box)
        bound = kernel(ops.relu, name=f"{build}{id(remote)}", **claims)(remote)
        setting = setting_of("cpu", SIZE_BUDGETS["cpu"], CLASSES)
        return Evaluator(bound, setting).judge(case, depth), remote


@pytest.mark.parametrize(
    ("build", "claims"),
    [
        pytest.param("honest", {}, marks=pytest.mark.slow),
        pytest.param("has_its_input_elsewhere", {}, marks=pytest.mark.slow),
        pytest.param("in_place", {"inplace": ("x",)}, marks=pytest.mark.slow),
    ],
)
def test_a_bench_judges_a_remote_kernel_as_any_other(
    zygote: Zygote, build: str, claims: dict[str, object]
) -> None:
    strided = x_case("randn", (6, 7), strides=(16, 2), offset=3)
    depth = Depth.SEARCH if claims else Depth.FULL
    for case in (CASE, strided) if claims else (strided,):
        report, remote = judged(zygote, build, case, depth=depth, **claims)
        assert report.failure is None, report
        assert not report.error
        assert report.verdicts["K-VAL-01"] == "conforms"
        assert report.verdicts["K-MEM-01"] == "conforms"
        assert remote.sandbox.used == 1
        assert remote.calls > 0
        assert not remote.late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "contract", "kind"),
    [
        ("writes_past_the_end", "K-MEM-01", Kind.WRITE_OUTSIDE),
        ("zeroes_its_input", "K-MEM-03", Kind.INPUT_MODIFIED),
        ("moves_its_input", "K-MEM-03", Kind.INPUT_MODIFIED),
        ("turns_its_input", "K-MEM-03", Kind.INPUT_MODIFIED),
        ("returns_its_input", "K-MEM-03", Kind.INPUT_MODIFIED),
        ("lazy", "K-MET-01", Kind.WRONG_TYPE),
        ("of_other_size", "K-MET-01", Kind.WRONG_SHAPE),
        ("of_other_dtype", "K-MET-01", Kind.WRONG_DTYPE),
        ("a_mapping", "K-MET-01", Kind.WRONG_TYPE),
        ("leaves_a_tail", "K-MEM-02", Kind.UNWRITTEN),
        ("shares_a_buffer", "K-MEM-04", None),
        ("remembers_addresses", "K-REF-01", Kind.STALE_RESULT),
        ("raises", "K-LIV-01", Kind.RAISES),
        ("kills_itself", "K-LIV-01", Kind.CRASH),
        ("prints_much", "K-LIV-01", Kind.CRASH),
        ("sleeps", "K-LIV-01", Kind.HANG),
    ],
)
def test_a_wrong_remote_kernel_is_charged_as_any_other(
    zygote: Zygote, build: str, contract: str, kind: Kind | None
) -> None:
    limits = BRIEF if kind is Kind.HANG else LIMITS
    report, remote = judged(zygote, build, limits=limits)
    assert report.failure is not None, report
    assert report.failure.contract == contract, report.failure
    assert kind is None or report.failure.kind is kind, report.failure
    if kind is Kind.HANG:
        assert remote.sandbox.used == 2


def test_a_kernel_that_ignores_strides_is_charged_on_a_strided_case(
    zygote: Zygote,
) -> None:
    strided = x_case("randn", (6, 7), strides=(16, 2), offset=3)
    report, _ = judged(zygote, "expects_contiguous", strided)
    assert report.failure is not None
    assert report.failure.contract == "C-CMP-03"


def test_memory_that_runs_out_is_no_violation(zygote: Zygote) -> None:
    report, _ = judged(zygote, "says_that_memory_ran_out")
    assert report.failure is None
    assert report.error is not None
    assert "out of memory" in report.error


def test_results_that_come_late_are_told(zygote: Zygote) -> None:
    with sandbox(zygote, "writes_later") as box:
        called = box.call([data()])
        assert called.returned is not None
        assert called.returned.late


# Opening ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "raised", "end"),
    [
        ("import os\nos._exit(0)", "", End.CRASH),
        ("raise ValueError('no')", "ValueError", None),
        ("def other(): pass", "AttributeError", None),
    ],
)
def test_what_cannot_be_opened_says_why(
    zygote: Zygote, tmp_path: Path, source: str, raised: str, end: End | None
) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(source)
    with sandbox(zygote, "f", file) as box:
        opened = box.start()
        assert (opened.raised.type if opened.raised else "") == raised
        assert (opened.ended.end if opened.ended else None) is end


MODULE = """
import torch
from helper import scale

class ModelNew(torch.nn.Module):
    def __init__(self, size, bias):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size))
        self.register_buffer("bias", torch.full((size,), float(bias)))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, factor, y):
        return self.drop(x * self.weight + self.bias + y) * factor * scale
"""


def test_a_module_is_built_with_weights_mode_and_fixed_arguments(
    zygote: Zygote, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("scale = 2")
    file = tmp_path / "candidate.py"
    file.write_text(MODULE)
    weight = torch.arange(4.0)
    entry = Entry(
        file, "ModelNew", args=(4, 0.5), seed=3,
        weights={"weight": weight, "absent": torch.full((4,), 0.5)}, fixed={1: 3.0},
        evaluation=True,
    )  # fmt: skip
    with Sandbox(entry, device="cpu", limits=LIMITS, zygote=zygote) as box:
        opened = box.start()
        assert opened.built.loaded == ("weight",)
        assert set(opened.built.state) == {"weight", "bias"}
        assert opened.built.alike == ("absent",)
        x, y = torch.ones(2, 4), torch.full((2, 4), 10.0)
        called = box.call([x, y])
        assert called.returned is not None, called
        assert torch.equal(called.returned.value, (weight + 10.5).expand(2, 4) * 6)


COUNTED = """
import os
import signal
import torch

pid = os.getpid()

def f(x):
    assert os.getpid() == pid
    return torch.full_like(x, pid)

def g(x):
    return x + 1
"""


@pytest.mark.slow
def test_children_are_prepared_before_they_are_called(
    zygote: Zygote, tmp_path: Path
) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(COUNTED)
    with sandbox(zygote, "f", file) as box:
        pids = set()
        for prepared in (0, 3, 2, 1, 0):
            if prepared == 3:
                box.prepare(3)
                box.prepare(3)  # they are there
            called = box.call([data()])
            assert called.returned is not None, called
            pids.add(float(called.returned.value[0, 0]))
            box.fresh()
        assert len(pids) == box.used == 5
        box.prepare(2)
        box.enter(Entry(file, "g"))
        called = box.call([data()])
        assert called.returned is not None, called
        assert torch.equal(called.returned.value, data() + 1)


def test_one_that_ends_while_it_is_prepared_is_told_when_it_is_called(
    zygote: Zygote, tmp_path: Path
) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(COUNTED)
    with sandbox(zygote, "f", file) as box:
        assert box.call([data()]).returned is not None
        file.write_text("import os\nos._exit(3)")
        box.prepare(2)
        box.fresh()
        for _ in range(2):
            ended = box.call([data()]).ended
            assert ended is not None
            assert (ended.end, ended.detail) == (End.CRASH, "exit code 3")
        file.write_text(COUNTED)
        assert box.call([data()]).returned is not None


def test_one_that_was_ended_while_it_waited_leaves_the_next_as_contained(
    zygote: Zygote,
) -> None:
    with sandbox(zygote, "honest") as box:
        told = box.containment
    waiting = Sandbox(
        None, device="cpu", limits=LIMITS, ways=ALL, zygote=zygote
    )  # fmt: skip
    with waiting as box:
        box.prepare(1)
        os.kill(box._spares[0]._child.pid, signal.SIGKILL)
        box.enter(Entry(HOSTILE, "honest"))
        assert box.call([data()]).returned is not None
        assert box.containment == told


@pytest.mark.slow
def test_what_holds_is_told_for_each_way(zygote: Zygote) -> None:
    subjects = {"files", "network", "other processes"}
    for way in WAYS:
        with sandbox(zygote, "honest", way=way) as box:
            lacking = {m.name for m in box.containment.values() if not m.held}
            assert "reading" in lacking
            facts = box._kept.facts  # type: ignore[union-attr]
            mounts = "network namespace", "own /dev", "read-only mounts"
            if facts.pids and facts.hold(*mounts):
                assert way not in ("landlock", "watched")
                assert not subjects & lacking
            elif facts.landlock >= 6:
                assert not subjects & lacking
            elif way == "watched":
                assert subjects <= lacking


def test_what_a_stranger_may_speak_for_is_never_unpickled() -> None:
    with zygote_for("cpu") as zygote:
        assert not zygote.pickled
        assert not zygote._control.pickled
