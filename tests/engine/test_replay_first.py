"""Stored findings replayed before the search: what is told, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.event import FindingReplayed, KernelFinished
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind
from kfuzz.report.text import read_events
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import Corpus
from tests.e2e.project import HEADER, WRONG
from tests.helpers.findings import finding

# Right while a file says so: in this process a module is imported once.
MENDABLE = WRONG.replace(
    "    if n & (n - 1):",
    '    from pathlib import Path\n    if n & (n - 1) and not Path("mended").exists():',
)


@pytest.fixture
def searched(project: Path) -> Path:
    """A project in which a finding of its kernel is stored."""
    (project / "kernels.py").write_text(HEADER + MENDABLE)
    spec = TensorSpec((3,), ("d0",), "float32", values=bytes(10) + b"\x80\x3f")
    failure = Failure("C-CMP-03", Kind.VALUE, "y[2] = 0, exactly 1", "y")
    found = finding(
        signature=failure.signature("wrong"),
        target=Target("kernels.py", "wrong"),
        operator="relu",
        case=Case({"x": spec}),
        failure=failure,
    )
    Corpus(project / "corpus").save(found)
    return project


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(
        ["run", "kernels.py", "--isolate", "none", "--device", "cpu", "-q",
         "--format", "json", *words]
    )  # fmt: skip
    document: dict[str, Any] = strict_json.loads(capsys.readouterr().out)
    return code, document


def test_the_life_of_a_finding_that_is_replayed(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Too few cases for the search to find it by itself.
    again = ["--replay", "--max-cases", "1", "--seed", "1"]
    code, document = run(capsys, *again, "--report", "jsonl=kept.jsonl,markdown=k.md")
    [kernel], [replayed] = document["kernels"], document["replayed"]
    assert (code, replayed["outcome"], replayed["failures"]) == (1, "FAILS", 3)
    [found] = kernel["findings"]
    assert (found["id"], found["state"]) == (replayed["id"], "confirmed")
    assert kernel["contracts"]["C-CMP-03"]["verdict"] == "violates"
    with (searched / "kept.jsonl").open() as lines:
        events = list(read_events(lines))
    assert [type(e) for e in events].count(FindingReplayed) == 1
    assert next(e for e in events if isinstance(e, KernelFinished)).findings
    assert replayed["id"] in (searched / "k.md").read_text()

    main(["corpus", "mark", replayed["id"], "known", "--reason", "later"])
    code, document = run(capsys, *again)
    assert (code, document["replayed"][0]["state"]) == (0, "known")
    assert run(capsys, *again, "--fail-on", "any")[0] == 1

    (searched / "mended").touch()
    code, document = run(capsys, *again)
    assert code == 0
    assert document["replayed"][0]["outcome"] == "FIXED"
    assert document["replayed"][0]["seems_fixed"]
    assert document["kernels"][0]["findings"] == []

    main(["corpus", "mark", replayed["id"], "fixed"])
    (searched / "mended").unlink()
    code, document = run(capsys, *again)
    assert (code, document["replayed"][0]["state"]) == (1, "regressed")
    assert document["kernels"][0]["findings"][0]["state"] == "regressed"


@pytest.mark.slow
def test_new_findings_alone_end_the_search_of_a_kernel_and_the_run_says_so(
    searched: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.engine.search.campaign.FINDINGS_PER_KERNEL", 1)
    again = ["--max-cases", "30", "--seed", "1", "--burst", "1"]
    for replays, cases, told in (("--no-replay", range(30), 1), ("--replay", (30,), 0)):
        document = run(capsys, *again, replays)[1]
        [kernel] = document["kernels"]
        assert kernel["findings"]
        assert kernel["cases"] in cases
        texts = [n["message"] for n in document["notices"]]
        assert sum("searched no more" in text for text in texts) == told


def test_only_what_this_run_can_replay_is(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--max-cases", "1", "--seed", "1"]
    assert run(capsys, *again)[1]["replayed"] == []
    assert run(capsys, *again, "--profile", "pr", "--no-replay")[1]["replayed"] == []
    assert run(capsys, *again, "--replay", "--contracts", "K-*")[1]["replayed"] == []
    [path] = (searched / "corpus").glob("*/*/finding.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "device": "cuda"}))
    code, made = run(capsys, *again, "--replay")
    told = [n["message"] for n in made["notices"]]
    assert (code, made["replayed"]) == (0, [])
    assert "1 stored finding of other devices not replayed on cpu" in told
    path.write_text("{")
    code, made = run(capsys, *again, "--replay")
    assert (code, made["replayed"][0]["outcome"]) == (3, "ERROR")
