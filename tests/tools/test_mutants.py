"""The mutator of the benchmarks: what it makes, and what is said of it."""

import ast
import fnmatch
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.codec import encode
from kfuzz.execution.processes import Zygote
from kfuzz.targets.load import Source, load
from tests.benchmarks.mutants import asking, in_child, mutator, report, scaled_inputs
from tests.benchmarks.mutants.asking import COMPARISON, KFUZZ, LONGER, START, Step
from tests.benchmarks.mutants.campaign import Settings, State, next_step
from tests.benchmarks.mutants.explained import CHARGED, EXPLAINED
from tests.benchmarks.mutants.in_child import COMPARE, Comparison
from tests.benchmarks.mutants.mutator import RULES, Mutant, mutants, written
from tests.benchmarks.mutants.rules import is_call
from tests.benchmarks.mutants.small_cases import small_cases
from tests.benchmarks.mutants.specimens import SPECIMENS, Specimen
from tests.benchmarks.peers.asking import PRELOAD, environment
from tests.benchmarks.peers.serving import answer
from tests.benchmarks.peers.subject import Budget, Subject

SETTINGS = Settings("interpret", (KFUZZ,), Budget(5.0), 200, 30.0, 0)


def by_id(id: str) -> Mutant:
    return next(m for m in mutants() if m.id == id)


def specimen(name: str) -> Specimen:
    return next(s for s in SPECIMENS if s.name == name)


def compared(folder: Path, mutant: Mutant, file: str, cases: int) -> dict[str, Any]:
    asked = Comparison.within(
        folder,
        mutant.specimen.name,
        file,
        backend="interpret",
        seconds=60.0,
        cases=cases,
    )
    return in_child.compared(asked)


def test_every_rule_makes_mutants_that_are_python() -> None:
    counts = Counter(m.rule.name for m in mutants())
    assert [rule.name for rule in RULES if not counts[rule.name]] == []
    assert len(counts) == len(RULES), "two rules have one name"
    first = {m.rule.name: m for m in reversed(mutants())}
    for mutant in first.values():
        compile(mutant.text, mutant.id, "exec")


def test_more_than_300_run_on_a_gpu_and_in_the_interpreter() -> None:
    for backend in ("cuda", "interpret"):
        assert sum(backend in m.backends for m in mutants()) > 1000


def test_what_is_explained_is_there() -> None:
    ids = [m.id for m in mutants()]
    for glob in (*EXPLAINED, *CHARGED):
        assert fnmatch.filter(ids, glob), glob
    assert report.why("triton_relu/program-order/1")
    assert not report.why("triton_relu/program-order/2"), "a fault"


def test_the_list_is_the_same_each_time_and_has_nothing_twice() -> None:
    again = mutator.mutants_of(SPECIMENS[:6])
    first = mutants()[: len(again)]
    assert [(m.id, m.digest) for m in again] == [(m.id, m.digest) for m in first]
    every = mutants()
    assert len({m.id for m in every}) == len(every)
    assert len({m.file for m in every}) == len(every)
    assert len({(m.specimen.name, m.text) for m in every}) == len(every)


def test_a_mutant_differs_in_the_lines_of_one_edit() -> None:
    for mutant in mutants()[::7]:
        removed = [x for x in mutant.diff.splitlines() if x.startswith("-")]
        assert 0 < len(removed) <= 5, mutant.id
        assert mutant.text != mutant.specimen.text


def test_code_that_a_kernel_never_runs_is_left_alone() -> None:
    softmax = [m for m in mutants() if m.specimen.name == "triton_softmax"]
    assert all("0.0 if TAIL_ZERO" in m.text for m in softmax)
    own = [m for m in mutants() if m.specimen.name == "triton_exp"]
    assert own
    assert all("sigmoid" not in m.diff for m in own)


def test_only_functions_that_triton_compiles_are_changed_by_rules_of_kernels() -> None:
    mutant = by_id("triton_softmax/load-unmasked/1")
    loads = [n for n in ast.walk(ast.parse(mutant.text)) if is_call(n, "tl.load")]
    bare = [n for n in loads if not n.keywords]  # type: ignore[attr-defined]
    assert len(loads) == 3
    assert len(bare) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mutants")
    chosen = ("triton_softmax/wrong-fill/1", "triton_relu/program-order/1")
    written(made, [by_id(id) for id in chosen])
    return made


def test_a_known_mutant_is_charged_and_its_kernel_is_not(folder: Path) -> None:
    mutant = by_id("triton_softmax/wrong-fill/1")
    told = compared(folder, mutant, mutant.file, 80)
    assert told["charged"].startswith(("C-CMP-03", "C-PRC-02", "K-VAL-01")), told
    correct = compared(folder, mutant, "triton_softmax.py", 6)
    assert (correct["charged"], correct["differing"], correct["cases"]) == ("", 0, 6)


def test_another_order_of_programs_is_equivalent(folder: Path) -> None:
    mutant = by_id("triton_relu/program-order/1")
    told = compared(folder, mutant, mutant.file, 6)
    assert (told["charged"], told["differing"], told["cases"]) == ("", 0, 6)


def test_a_comparison_in_another_process_tells_the_same(folder: Path) -> None:
    mutant = by_id("triton_relu/program-order/1")
    correct = folder / "triton_relu.py"
    with Zygote(COMPARE, env=environment("interpret"), preload=PRELOAD) as zygote:
        step = Step(
            mutant.id, COMPARISON, "triton_relu", folder / mutant.file, correct,
            "interpret", 60.0, None, 3, 0,
        )  # fmt: skip
        told = asking._compared(zygote, step)
    assert (told["charged"], told["differing"], told["cases"]) == ("", 0, 3)


def test_small_cases_are_the_same_each_time_and_in_the_domain() -> None:
    kernel = specimen("triton_linear").witness.load()
    first = list(small_cases(kernel, 50))
    assert first == list(small_cases(kernel, 50))
    assert len(first) == 50
    assert all(kernel.operator.admits(c, kernel.declaration) for c in first)
    families = {c.data.fill.family for c in first if c.data.fill}
    assert len(families) > 10


def test_peers_search_a_file_in_place_of_a_witness(folder: Path) -> None:
    mutant = by_id("triton_softmax/wrong-fill/1")
    source = Source(file=folder / mutant.file, only=("triton_softmax",))
    kernel = load(source, root=folder)[0].kernel
    witness = mutant.specimen.witness
    made = scaled_inputs.search(Subject(kernel, witness.shapes), Budget(60.0), 0)
    # Of a whole number of blocks nothing is padded.
    assert (made.found, made.cases) == (False, 20)
    (folder / "tried").write_bytes(bytes(8))
    asked = {
        "peer": in_child.STARTS, "witness": encode(witness), "cases": None,
        "seconds": 60.0, "seed": 0, "tried": str(folder / "tried"), "device": "cpu",
        "file": str(folder / mutant.file),
    }  # fmt: skip
    reply = answer(asked)
    assert (reply["found"], reply["cases"], reply["message"]) == (False, 1, "")


def test_steps_follow_from_what_is_known() -> None:
    asked = replace(SETTINGS, tools=(KFUZZ, "odd shapes"))
    known: dict[str, Any] = {"searches": {}}
    assert next_step(known, asked, correct=False) == START
    assert next_step(known, asked, correct=True) == KFUZZ
    known[START] = {"raised": "CompilationError: no"}
    assert next_step(known, asked, correct=False) == ""
    known[START] = {"raised": ""}
    known["searches"] = {KFUZZ: {"found": False}}
    assert next_step(known, asked, correct=False) == "odd shapes"
    known["searches"]["odd shapes"] = {"found": True}
    assert next_step(known, asked, correct=False) == COMPARISON
    assert next_step(known, asked, correct=True) == ""
    known["searches"][KFUZZ] = {"found": True}
    assert next_step(known, asked, correct=False) == ""


def test_what_kfuzz_leaves_is_searched_longer_and_compared_once_more() -> None:
    known: dict[str, Any] = {
        START: {"raised": ""},
        "searches": {KFUZZ: {"found": False}},
        COMPARISON: {"cases": 99, "limit": SETTINGS.comparing, "charged": ""},
    }
    assert next_step(known, SETTINGS, correct=False) == ""
    more = replace(SETTINGS, comparing=2 * SETTINGS.comparing, longer=40.0)
    assert next_step(known, more, correct=False) == LONGER
    known[LONGER] = {"found": False}
    assert next_step(known, more, correct=False) == COMPARISON
    known[COMPARISON]["cases"] = 100
    assert next_step(known, more, correct=False) == ""
    known[COMPARISON] = {"error": "no", "limit": more.comparing}
    assert next_step(known, more, correct=False) == ""
    known[LONGER] = {"found": True}
    assert next_step(known, replace(more, comparing=1e6), correct=False) == ""


def test_the_state_travels_and_forgets_what_another_source_showed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.json"
    state = State(path, SETTINGS)
    state.unit("a", "1")["searches"][KFUZZ] = {"found": True}
    state.keep()
    again = State(path, SETTINGS)
    assert again.unit("a", "1")["searches"] == {KFUZZ: {"found": True}}
    assert again.unit("a", "2")["searches"] == {}
    with pytest.raises(ValueError, match="seed was 0"):
        State(path, Settings("interpret", (KFUZZ,), Budget(5.0), 200, 30.0, 1))


def test_the_tables_count_what_can_be_killed(tmp_path: Path) -> None:
    every = [m for m in mutants() if m.specimen.name == "triton_relu"][:4]
    state = State(tmp_path / "state.json", SETTINGS)

    def found(found: bool) -> dict[str, Any]:
        return {"found": found, "cases": 4, "seconds": 0.5, "message": ""}

    odd = "odd shapes"
    state.unit("triton_relu", every[0].specimen.digest)["searches"] = {
        KFUZZ: found(False), odd: found(True),
    }  # fmt: skip
    killed, left, same, dead = (state.unit(m.id, m.digest) for m in every)
    for known in (killed, left, same):
        known[START] = {"raised": ""}
    dead[START] = {"raised": "CompilationError: no"}
    killed["searches"] = {KFUZZ: found(True), odd: found(True)}
    left["searches"] = {KFUZZ: found(False), odd: found(False)}
    same["searches"] = {KFUZZ: found(False), odd: found(True)}
    compared = {"cases": 200, "differing": 0, "ratio": 0.0, "first": "", "charged": ""}
    left[COMPARISON] = {**compared, "charged": "K-VAL-01: y[0]"}
    same[COMPARISON] = compared
    told = report.told(every, state, (KFUZZ, odd))
    assert [str(k) for k in told.kinds.values()] == [
        "killed", "left", "equivalent", "stillborn",
    ]  # fmt: skip
    text = report.tables(told)
    assert "| kfuzz | 1 | 2 | 50.0 | 1 | 0 of 1 | 0 of 1 | 4 | 0.5 |" in text
    assert "| odd shapes | 1 | 2 | 50.0 | 0 | 1 of 1 | 1 of 1 | 4 | 0.5 |" in text
    assert "K-VAL-01: y[0]" in text
    assert [r.unit for r in report.killed(told, KFUZZ)] == [every[0].id]
    assert list(report.killed(told, odd)) == []
