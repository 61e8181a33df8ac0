"""The pytest plugin: what is collected, what passes and fails, what is printed."""

import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kfuzz
from kfuzz.core.finding import Finding, Mark
from kfuzz.core.verdict import Kind, State
from kfuzz.engine import replay as engine
from kfuzz.engine.config import ReplayConfig, ReplayOutcome, ReplayResult
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.life import marked
from tests.helpers.findings import finding

pytest_plugins = ["pytester"]

INSTALLED = any(e.name == "kfuzz" for e in entry_points(group="pytest11"))
LOAD = [] if INSTALLED else ["-p", "kfuzz.pytest_plugin"]


@pytest.fixture(autouse=True)
def kept_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this process's zygotes to it: the runs below end theirs."""
    zygotes = SimpleNamespace(end_all=lambda: None)
    monkeypatch.setitem(sys.modules, "kfuzz.engine.workers.zygotes", zygotes)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What replaying gives, by kernel; FAILS by default."""
    wanted: dict[str, str] = {}

    def replay(
        stored: Sequence[Stored | Problem],
        config: ReplayConfig,
        *,
        stop: threading.Event,
    ) -> Iterator[ReplayResult]:
        [entry] = stored
        assert isinstance(entry, Stored)
        assert not config.keep  # tests write nothing
        found = entry.finding
        outcome = ReplayOutcome(wanted.get(found.signature.kernel, "FAILS"))
        failures = 0 if outcome in (ReplayOutcome.FIXED, ReplayOutcome.ERROR) else 2
        yield ReplayResult(
            found, entry.path, outcome, failures, 3, "off by 3",
            ("torch: 2.11 -> 2.13",), by_chance=found.signature.kind is Kind.RACE,
        )  # fmt: skip

    monkeypatch.setattr(engine, "replay", replay)
    return wanted


def store(pytester: pytest.Pytester, *findings: Finding) -> None:
    for one in findings:
        Corpus(pytester.path / "corpus").save(one)


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    given = ["-p", "no:cacheprovider", "--kfuzz-corpus", "corpus", *LOAD]
    return pytester.runpytest_inprocess(*given, *words)


def in_state(kernel: str, state: State) -> Finding:
    if state is State.KNOWN:
        mark = Mark("upstream bug", "https://example.com/7")
        return marked(finding(kernel=kernel), state, mark=mark)
    return finding(kernel=kernel, state=state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "outcome", "result"),
    [
        (State.CONFIRMED, "FAILS", "failed"),
        (State.CONFIRMED, "FIXED", "passed"),
        (State.REGRESSED, "FAILS", "failed"),
        (State.FIXED, "FAILS", "failed"),
        (State.KNOWN, "FAILS", "xfailed"),
        (State.KNOWN, "FIXED", "failed"),  # strict
        (State.KNOWN, "ERROR", "failed"),
        (State.FLAKY, "FAILS", "xfailed"),
        (State.UNREPRODUCED, "FLAKY", "xfailed"),
    ],
)
def test_what_becomes_of_a_finding(
    pytester: pytest.Pytester,
    outcomes: dict[str, str],
    state: State,
    outcome: str,
    result: str,
) -> None:
    one = in_state("softmax", state)
    store(pytester, one)
    outcomes["softmax"] = outcome
    done = run(pytester, "-v")
    done.assert_outcomes(**{result: 1})
    done.stdout.fnmatch_lines([f"corpus/softmax/*/finding.json::{one.id} *"])
    said = done.stdout.str()
    if state is State.KNOWN and outcome == "FIXED":
        assert f"kfuzz corpus mark {one.id} fixed --corpus corpus" in said
    if result == "xfailed":
        assert "= kfuzz =" in said
        assert f"{state} {one.id}: " in said


def test_a_failure_is_short_and_says_what_to_type(
    pytester: pytest.Pytester, outcomes: dict[str, str]
) -> None:
    store(pytester, finding())
    done = run(pytester)
    done.stdout.fnmatch_lines(
        [
            "FAIL softmax: wrong value in out  * kernels/mine.py",
            "  replayed  2 of 3 runs fail",
            "  actual    off by 3",
            "  input     x: float32*",
            "  contract  C-PRC-01: computes in *",
            f"  replay    kfuzz replay {finding().id} --corpus corpus",
        ]
    )
    assert "pytest_plugin.py" not in done.stdout.str()
    assert "Traceback" not in done.stdout.str()


def test_findings_stand_beside_other_tests_and_can_be_chosen(
    pytester: pytest.Pytester, outcomes: dict[str, str]
) -> None:
    one, other = finding(kernel="one"), finding(kernel="other")
    store(pytester, one, other)
    outcomes["other"] = "FIXED"
    pytester.makepyfile("def test_mine(): pass")
    run(pytester).assert_outcomes(failed=1, passed=2)
    run(pytester, "-k", one.id).assert_outcomes(failed=1, deselected=2)
    node = f"corpus/{other.folder}/finding.json::{other.id}"
    run(pytester, node).assert_outcomes(passed=1)
    pytester.runpytest_inprocess(*LOAD).assert_outcomes(passed=1)


def test_a_damaged_entry_fails_and_hides_no_other(
    pytester: pytest.Pytester, outcomes: dict[str, str]
) -> None:
    store(pytester, *(finding(kernel=name) for name in ("a", "b", "c", "d")))
    for name, text in (("a", "{"), ("b", '{"format": 2}')):
        path = pytester.path / "corpus" / finding(kernel=name).folder
        (path / "finding.json").write_text(text)
    (pytester.path / "corpus/c").rename(pytester.path / "elsewhere")
    (pytester.path / "corpus/c").symlink_to(pytester.path / "elsewhere")
    done = run(pytester)
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(["*not JSON*", "*a link, which is not followed*"])
    done.stdout.no_fnmatch_line("*corpus/b/*")  # of a newer version


@pytest.mark.slow
def test_loading_the_plugin_imports_nothing_slow(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    assert not {'torch', 'numpy', 'kfuzz.store.corpus'} & set(sys.modules)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(kfuzz.__file__).parents[1]))
    pytester.runpytest_subprocess(*LOAD).assert_outcomes(passed=1)


SEARCHED = """
import kfuzz

@kfuzz.mark.falsify("a kernel", max_cases=7, max_time=90.0)
def test_softmax():
    print("the body runs")
"""


@pytest.mark.parametrize(
    ("states", "result"),
    [
        ([], "passed"),
        (["KNOWN"], "passed"),
        (["CONFIRMED"], "failed"),
        (["KNOWN", "REGRESSED"], "failed"),
    ],
)
def test_a_search_as_a_test(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    states: list[str],
    result: str,
) -> None:
    asked: list[dict[str, Any]] = []

    def falsify(kernel: str, **options: Any) -> list[Finding]:
        asked.append({"kernel": kernel} | options)
        return [finding(state=State[state]) for state in states]

    api = SimpleNamespace(falsify=falsify)
    monkeypatch.setitem(sys.modules, "kfuzz.api", api)
    pytester.makepyfile(SEARCHED)
    pytester.makepyprojecttoml("")
    words = ("-p", "no:cacheprovider", "-rP", "--kfuzz-max-time", "30s")
    done = pytester.runpytest_inprocess(*LOAD, *words)
    done.assert_outcomes(**{result: 1})
    said = done.stdout.str()
    given = {"max_cases": 7, "max_time": 30.0, "corpus": pytester.path / "corpus"}
    assert asked == [{"kernel": "a kernel"} | given]
    assert ("the body runs" in said) == (result == "passed")
    if result == "failed":
        assert f"replay    kfuzz replay {finding().id}" in said
        assert "pytest_plugin.py" not in said
    for state in {"KNOWN", "FLAKY"} & set(states):
        assert f"{state.lower()} {finding().id}" in said


def test_what_fails_for_want_of_a_gpu_names_the_way_out(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import torch
        import kfuzz

        def launches(x):
            raise RuntimeError("0 active drivers ([]). There should only be one.")

        def test_own_launch():
            launches(torch.ones(3))

        def test_within():
            kfuzz.assert_conforms(torch.ones(3), launches, torch.ones(3))

        def test_wrong():
            kfuzz.assert_conforms(-torch.ones(3), "relu", torch.ones(3))
        """
    )
    # Without pytest's summary, which repeats a whole error where CI is set.
    done = pytester.runpytest_inprocess("-rN", "-p", "no:cacheprovider", *LOAD)
    done.assert_outcomes(failed=3)
    text = done.stdout.str()
    way = "without a GPU, set TRITON_INTERPRET=1 before triton is first imported"
    assert text.count(f"There should only be one. {way}") == 1
    assert f"kfuzz: {way}" in text
    assert "In the place of `torch.testing.assert_close" not in text
