"""The functions of the benchmarks against peers, on a tiny size."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.burst import Burst
from kfuzz.core.finding import Change
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Kind, State
from kfuzz.targets.load import load_all
from tests.benchmarks import buckets, long_soak, peers, plot, throughput
from tests.benchmarks import to_first_falsification as falsification
from tests.benchmarks.peers import budgeted, five_random, numpy_arrays
from tests.benchmarks.peers.asking import Peers
from tests.benchmarks.peers.drawn import Limits
from tests.benchmarks.peers.faults import FAULTS, Fault, entries, faults
from tests.benchmarks.peers.subject import Budget, Sizes, Subject
from tests.benchmarks.timing import plain
from tests.benchmarks.timing.families import FAMILIES, KERNELS
from tests.benchmarks.timing.in_child import Measuring, Timed, placed
from tests.helpers.findings import finding

FAULT = Fault("one shape", "cheat_tuned_shape", "torch_tanh")


def subject(name: str) -> Subject:
    witness = entries("cpu")[name].witness
    return Subject(witness.load(), witness.shapes, witness.dtype)


def search(
    tool: str, kernel: str, *, found: bool, correct: bool = False, seed: int = 0
) -> falsification.Search:
    return falsification.Search(tool, kernel, correct, seed, found, 4 + seed, 0.5, "")


def test_every_fault_has_a_witness_and_a_correct_twin_of_its_operator() -> None:
    known = entries("cpu")
    for fault in FAULTS:
        faulty, twin = known[fault.kernel], known[fault.twin]
        assert faulty.witness.contract, fault.kernel
        assert twin.witness.conforming, fault.twin
        operators = {e.load().operator.name for e in (faulty, twin)}
        assert len(operators) == 1, f"{fault.kernel} beside {fault.twin}"
        assert subject(fault.kernel).dtypes, f"{fault.kernel} takes none of the dtypes"


def test_on_a_gpu_what_shows_there_is_searched() -> None:
    chosen = faults("cuda")
    assert faults("cpu") == list(FAULTS)
    assert 20 < len(chosen) < len(FAULTS)
    known = entries("cuda")
    assert {known[f.kernel].backend for f in chosen} == {"cuda"}


def test_the_plain_loop_tells_a_fault_from_a_correct_kernel() -> None:
    budget = Budget(seconds=60.0, cases=12)
    found = numpy_arrays.within_100(subject(FAULT.kernel), budget, 3)
    assert found.found
    assert found.cases <= 12
    assert "AssertionError" in found.message
    silent = numpy_arrays.within_100(subject(FAULT.twin), budget, 3)
    assert (silent.found, silent.cases) == (False, 12), silent.message


def test_five_random_inputs_are_what_witnesses_pass() -> None:
    made = five_random.search(subject(FAULT.kernel), Budget(60.0), 0)
    assert (made.found, made.cases) == (False, five_random.INPUTS)


def test_a_search_ends_with_its_time() -> None:
    made = numpy_arrays.any_floats(subject(FAULT.twin), Budget(seconds=0.0), 0)
    assert (made.found, made.cases) == (False, 0)


def test_a_finding_is_lost_unless_some_later_form_of_it_is_there() -> None:
    def at(when: str) -> tuple[Change, ...]:
        return (Change(State.NEW, when),)

    told = finding(n=3, history=at("2026-01-01T00:00:05Z"))
    other = replace(told, first=told.case, explanation=None)
    assert other.id != told.id
    assert long_soak.is_kept(told, told)
    assert long_soak.is_kept(told, replace(other, first=told.first))
    assert long_soak.is_kept(told, other)  # it has become one with that
    assert not long_soak.is_kept(
        told, replace(other, history=at("2026-01-01T00:00:04Z"))
    )
    elsewhere = replace(other.signature, kind=Kind.CRASH)
    assert not long_soak.is_kept(told, replace(other, signature=elsewhere))


def test_memory_that_grows_is_not_flat() -> None:
    flat = [(float(t), 300.0 + t % 3) for t in range(60)]
    text, good = long_soak.memory_line("cpu", flat)
    assert good
    assert "first 300" in text
    growing = [(float(t), 300.0 + 4 * t) for t in range(60)]
    text, good = long_soak.memory_line("cpu", growing)
    assert not good
    assert "+14400.0 MB an hour" in text


def test_what_a_kernel_raises_is_seen() -> None:
    def refusing(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    made = Subject(subject(FAULT.twin).kernel)
    made.kernel = bound(refusing, made.kernel)
    trial = budgeted.Trial(made, Budget(60.0), five_random.compare)
    assert trial.try_input([torch.zeros(2)], 0)
    assert trial.found().message == "ValueError: no"
    assert trial.over


def bound(function: Any, like: BoundKernel) -> BoundKernel:
    return BoundKernel(
        function, name="made", operator=like.operator, declaration=like.declaration,
        explicit=like.explicit, arguments=like.arguments, module=__name__, line=1,
        top_level=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sizes", "shapes", "dims"),
    [
        ("torch_sum", Sizes((2, 5), {}), [(2, 5)], (-2, -1)),
        ("triton_matmul", Sizes((), {"M": 2, "K": 3, "N": 4}), [(2, 3), (3, 4)], (0,)),
        ("triton_layer_norm", Sizes((2,), {"N": 3}), [(2, 3), (3,), (3,)], (0,)),
    ],
)
def test_arguments_have_the_shapes_of_their_dimensions(
    name: str, sizes: Sizes, shapes: list[tuple[int, ...]], dims: tuple[int, ...]
) -> None:
    made = subject(name)
    random = torch.Generator().manual_seed(0)
    tensors = list(made.ordinary(sizes, torch.float32, random))
    assert [tuple(x.shape) for x in tensors] == shapes
    assert made.dims(sizes) == dims
    wanted = made.expected(tensors, dims[-1])
    five_random.compare(made.call(tensors, dims[-1], 0), wanted)


def test_sizes_of_0_are_admitted_where_operators_say_so() -> None:
    assert subject("torch_sum").admits(Sizes((2, 0), {}))
    assert not subject("triton_amax").admits(Sizes((2, 0), {}))


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {**peers.PEERS, "missing": "no_such_module:search"}
    monkeypatch.setattr(peers, "PEERS", missing)
    with pytest.raises(ImportError, match="no_such_module"):
        peers.load("missing")


def test_a_kernel_that_ends_its_process_is_seen() -> None:
    with Peers() as each:
        entry = entries("cpu")["relu_segfaults"]
        made = each.search("five random inputs", entry, Budget(60.0), 0)
        assert (made.found, made.cases) == (False, five_random.INPUTS)
        made = each.search("Hypothesis, within 100", entry, Budget(60.0), 0)
    assert made.found
    assert made.message == "SIGSEGV"
    assert made.cases > 1


def test_every_tool_searches_every_kernel() -> None:
    told: list[falsification.Search] = []
    unavailable: dict[str, str] = {}
    problems: list[str] = []
    made = falsification.searched(
        ["kfuzz", "five random inputs"], [FAULT], budget=Budget(60.0, 6),
        seeds=[1], unavailable=unavailable, problems=problems, tell=told.append,
    )  # fmt: skip
    assert told == made
    assert not problems
    assert not unavailable
    assert [(s.tool, s.kernel, s.correct, s.found) for s in made] == [
        ("kfuzz", FAULT.kernel, False, True),
        ("kfuzz", FAULT.twin, True, False),
        ("five random inputs", FAULT.kernel, False, False),
        ("five random inputs", FAULT.twin, True, False),
    ], made
    assert made[0].message.startswith("C-CMP-03")
    assert (made[1].cases, made[3].cases) == (6, five_random.INPUTS)


def test_a_fault_counts_if_the_correct_kernel_is_not_called_wrong() -> None:
    first, second = FAULTS[0], FAULTS[3]
    searches = [
        *(search("a", first.kernel, found=True, seed=n) for n in range(3)),
        search("a", second.kernel, found=True),
        search("a", first.twin, found=False, correct=True),
        search("a", second.twin, found=True, correct=True),
        *(search("b", first.kernel, found=n == 0, seed=n) for n in range(3)),
        search("b", first.twin, found=False, correct=True),
    ]
    a, b = falsification.rows(searches, [first, second])
    assert (a.found, a.told) == ((first.kernel, second.kernel), (first.kernel,))
    assert a.alarmed == (second.twin,)
    assert (a.searches, a.seen) == (4, 4)
    assert (b.found, b.told, b.seen) == ((), (), 1)
    assert math.isinf(b.seconds)
    text = falsification.table(searches, [first, second], {"c": "ImportError: no c"})
    assert "| c | not run: ImportError: no c |" in text
    detailed = falsification.details(searches, [first, second])
    assert "| 5; 0.5 s | – |" in detailed
    assert "| (4; 0.5 s) | not run |" in detailed


def test_the_plot_shows_what_was_told_apart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fault = FAULTS[0]
    searches = [
        search("kfuzz", fault.kernel, found=True),
        search("kfuzz", fault.twin, found=False, correct=True),
    ]
    assert [(c.tool, c.seconds, c.alarmed) for c in plot.curves(searches)] == [
        ("kfuzz", (0.5,), 0)
    ]
    file = tmp_path / "made.svg"
    plot.drawn(searches, 1.0, file)
    text = file.read_text()
    assert "kfuzz" in text
    plot.drawn(searches, 1.0, file)
    assert file.read_text() == text


def test_placed_values_have_the_strides_of_the_recipe() -> None:
    spec = TensorSpec((3, 2), ("a", "b"), "float32", (0, 2), 1, Fill("randn"))
    values = torch.tensor([[1.0, 2.0]]).expand(3, 2)
    view = placed(values, spec)
    assert (view.stride(), view.storage_offset()) == ((0, 2), 1)
    assert torch.equal(view, values)


def test_a_structure_is_timed() -> None:
    spec = TensorSpec((4, 8), ("d0", "d1"), "float32", fill=Fill("randn"))
    kernel = subject("torch_softmax").kernel
    measuring = Measuring(kernel, torch.device("cpu"), SizeBudget(1024, 64))
    case = Case({"x": spec}, {"dim": -1})
    made = measuring.structure(Burst(case, 3), judging=True)
    assert (made.dtype, made.members, made.unsupported) == ("float32", 3, "")
    assert made.suspects == 0
    assert made.calls > 0
    assert min(made.launches, made.oracle, made.screened, made.judged) > 0


@pytest.mark.parametrize("loop", plain.LOOPS)
def test_plain_loops_count_what_they_check(loop: str) -> None:
    kernel, limits = subject("torch_tanh").kernel, Limits(longest=8, leading=2)
    made = plain.LOOPS[loop](kernel, torch.device("cpu"), limits, 0.2, 5)
    assert made.cases > 0
    assert made.wrong == 0


def test_rates_are_folded_into_one_table() -> None:
    long = ({"screened": 0.25, "judged": 0.5}, {"screened": 0.35, "judged": 0.75})
    short = {"screened": 9.0, "judged": 9.0}
    timed = [
        vars(Timed("float32", 4, 0.02, 0.02, 0.05, alone=0.005, shares=long[0])),
        vars(
            Timed(
                "float32",
                4,
                alone=0.005,
                further=True,
                shares=long[1],
            )
        ),
        vars(Timed("float16", 4, 0.02, 0.02, 0.03, alone=0.001, shares=short)),
        vars(Timed("float16", 4, unsupported="it is a case of its own")),
    ]
    family: dict[str, Any] = {
        "structures": timed,
        "rate": vars(throughput.Rate(800, 0, 10, 0, 7, 2.0, 0.1, 50.0)),
    }
    for name in throughput.LOOPS:
        family[name] = vars(plain.Looped(40, 2.0, 0))
    made = throughput.summary(family)
    assert made["overhead"] == pytest.approx(2.0)
    assert (made["cases"], made["fresh"]) == (400, 50)
    assert made["over generated"] == pytest.approx(20)
    (*_, line) = throughput.table({"made up": family})
    assert "| 2.00 |" in line
    assert line.endswith("| 30% (≤ 35%); 50% (≤ 50%); 75% (≤ 75%) |")
    assert list(throughput.by_dtype({"made up": family})) == [
        "made up: float16 1.50 (1), float32 2.50 (2)"
    ]
    assert list(throughput.problems({"made up": family})) == [
        "made up: not screened: it is a case of its own"
    ]


def test_families_name_kernels_that_are_there() -> None:
    for backend, families in FAMILIES.items():
        for family in families:
            target = f"{KERNELS}::{family.kernel}"
            (loaded,) = load_all((target,), root=KERNELS.parent)
            some = throughput.drawn(throughput.bursts(loaded, family, backend), 3, 1)
            assert some, f"{backend}: {family.name}"
            for burst in some:
                assert loaded.kernel.operator.admits(
                    burst.case, loaded.kernel.declaration
                )


def side(*findings: str, state: str = "confirmed") -> buckets.Side:
    return buckets.Side(3, dict.fromkeys(findings, state), 100, 50)


def pair(off: buckets.Side, on: buckets.Side, contract: str = "K-VAL-01") -> Any:
    return buckets.Pair("k", "cpu", contract, off, on)


def test_bursts_may_find_more_but_nothing_less() -> None:
    few, many = side("K-VAL-01 value y"), side("K-VAL-01 value y", "K-MEM-01 y")
    assert not pair(few, few).differs
    assert not pair(few, many).differs
    assert pair(many, few).missing == ["K-MEM-01 y"]
    assert pair(many, few).differs
    assert pair(few, side(*many.states, state="flaky")).differs
    assert pair(few, few, contract="").differs  # a false alarm
    assert not pair(side(), side(), contract="").differs


@pytest.mark.slow
def test_a_fault_has_the_same_findings_with_bursts() -> None:
    entry = entries("cpu")["no_tile_in_relu"]
    made = buckets.compare(entry, cases=25, seed=3, isolate="none")
    assert list(made.off.states) == ["K-LIV-01 raises ValueError"]
    assert not made.differs, made
    assert made.on.screened > made.off.screened == 0
