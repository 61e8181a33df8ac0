"""Upkeep of a corpus: marks, corpora merged, what is over dropped; nothing lost."""

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.core.finding import Change, Explanation, Finding, Mark
from kfuzz.core.verdict import Feature, State
from kfuzz.engine.search.found import FiledFinding
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import enter, marked
from tests.helpers.command_line import paragraph, stored
from tests.helpers.findings import finding

NAN = Explanation((Feature.NAN,))
CASES = ("1", "2", "3", "4")


def held(folder: Path) -> dict[str, Finding]:
    entries = list(Corpus(folder).entries())
    assert all(isinstance(e, Stored) for e in entries), entries
    return {e.finding.id: e.finding for e in entries if isinstance(e, Stored)}


def state_of(project: Path, one: Finding) -> State:
    return held(project / "corpus")[one.id].state


def test_findings_of_the_signature_follow_a_mark_there_and_back(project: Path) -> None:
    one, other = stored(project), stored(project, explanation=NAN)
    apart = stored(project, kernel="other")
    mark = ["corpus", "mark", one.id]
    assert main([*mark, "known", "--reason", "x", "--features", "tail"]) == 0
    assert state_of(project, other) is State.CONFIRMED
    assert main([*mark, "known", "--reason", "x"]) == 0
    assert state_of(project, other) is State.KNOWN
    assert main([*mark, "fixed"]) == 0
    assert {state_of(project, f) for f in (one, other)} == {State.FIXED}
    assert state_of(project, apart) is State.CONFIRMED


def test_a_run_learns_of_marks_and_of_fixes(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.save(marked(finding(), State.KNOWN, mark=Mark("why")))
    for features, state in (((Feature.NAN,), State.KNOWN), ((Feature.TAIL,), None)):
        new = finding(state=State.NEW, explanation=None)
        entry = FiledFinding(corpus, new)
        assert entry.is_known
        entry.save(finding(explanation=Explanation(features)))
        assert entry.settle().state is (state or State.KNOWN)
    fixed = replace(finding(kernel="other"), state=State.FIXED)
    corpus.save(fixed)
    entry = FiledFinding(corpus, replace(fixed, state=State.NEW, explanation=None))
    assert not entry.is_known
    found = Change(State.CONFIRMED, "2026-02-02T00:00:00Z")
    entry.save(replace(fixed, state=State.CONFIRMED, history=(found,)))
    assert entry.settle().state is State.REGRESSED


def test_a_mark_that_comes_while_a_run_reduces_is_kept(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    new = finding(n=9, state=State.NEW, explanation=None)
    entry = FiledFinding(corpus, new)
    mark = Mark("why")
    corpus.change(new, lambda now: now and marked(now, State.KNOWN, mark=mark))
    entry.save(finding(n=5, explanation=None))
    entry.save(finding())
    final = entry.settle()
    assert (final.state, final.mark, final.input_elements) == (State.KNOWN, mark, 3)
    assert list(held(tmp_path).values()) == [final]


def test_a_mark_does_not_hold_where_its_case_fails_another_way(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    found = finding(state=State.NEW, explanation=None)
    corpus.save(marked(found, State.KNOWN, mark=Mark("why")))
    other = replace(found, signature=replace(found.signature, output="other"))
    entry = FiledFinding(corpus, other)
    assert not entry.is_known
    entry.save(enter(other, State.CONFIRMED))
    final = entry.settle()
    assert (final.id, final.signature) == (found.id, other.signature)
    assert final.state is State.CONFIRMED


def test_merging_takes_what_is_missing_and_keeps_the_smaller_minimum(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(project, n=9)
    nightly = Corpus(tmp_path / "nightly")
    for f in (finding(n=3), finding(kernel="other"), finding(kernel="third")):
        nightly.save(f)
    broken = nightly.root / finding(kernel="other").folder
    (broken / "first.json").write_text("{")
    merge = ["corpus", "merge", str(nightly.root)]
    assert main(merge) == ExitCode.VIOLATION  # one could not be taken in
    out = capsys.readouterr().out
    assert "a minimum of 3 elements for 9" in out
    assert "1 added, 1 joined, 1 skipped" in out
    mine = held(project / "corpus")
    assert sorted(f.signature.kernel for f in mine.values()) == ["softmax", "third"]
    assert mine[one.id].input_elements == 3
    assert main([*merge, "--format", "json"]) == ExitCode.VIOLATION
    document = strict_json.loads(capsys.readouterr().out)
    assert [e["did"] for e in document["entries"]] == ["skipped", "same", "same"]
    assert main(["corpus", "merge", "corpus"]) == ExitCode.USAGE
    assert "corpus itself" in paragraph(capsys)


def test_a_mark_from_elsewhere_holds_here_and_a_fix_is_not_forgotten(
    project: Path, tmp_path: Path
) -> None:
    one, other = stored(project), stored(project, explanation=NAN)
    elsewhere = Corpus(tmp_path / "elsewhere")
    elsewhere.save(marked(one, State.KNOWN, mark=Mark("why")))
    assert main(["corpus", "merge", str(elsewhere.root)]) == 0
    assert state_of(project, one) is state_of(project, other) is State.KNOWN
    assert main(["corpus", "mark", one.id, "fixed"]) == 0
    assert main(["corpus", "merge", str(elsewhere.root)]) == 0
    assert state_of(project, one) is State.FIXED  # the later of the two marks


def test_pruning_says_first_and_does_it_with_yes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = stored(project)
    old = (Change(State.FIXED, "2026-01-01T00:00:00Z"),)
    new = marked(finding(kernel="new"), State.FIXED)
    Corpus(project / "corpus").save(new)
    gone = [
        stored(project, kernel="old", state=State.FIXED, history=old),
        stored(project, kernel="once", state=State.UNREPRODUCED),
    ]
    assert main(["corpus", "prune"]) == 0
    out = capsys.readouterr().out
    assert all(f"would be dropped  {f.id}" in out for f in gone)
    assert "--yes does it" in out
    assert len(held(project / "corpus")) == 4
    assert main(["corpus", "prune", "--yes", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    assert document["done"]
    assert {e["id"] for e in document["entries"]} == {f.id for f in gone}
    assert set(held(project / "corpus")) == {kept.id, new.id}
    assert not (project / "corpus" / "old").exists()
    assert main(["corpus", "prune", "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["corpus", "prune", "--older-than", "soon"]) == ExitCode.USAGE


def test_of_a_bucket_one_entry_stays_with_the_history_of_all(project: Path) -> None:
    cut_short = Explanation(complete=False)
    one = stored(project, explanation=cut_short)
    early = stored(project, n=9, explanation=None, state=State.NEW)
    corpus = Corpus(project / "corpus")
    corpus.save(marked(early, State.KNOWN, mark=Mark("why")))
    assert main(["corpus", "prune", "--yes"]) == 0
    [left] = held(project / "corpus").values()
    assert (left.id, left.input_elements, left.state) == (one.id, 3, State.KNOWN)
    assert left.mark == Mark("why")


def _mark_each(root: Path, names: list[str]) -> None:
    for name in names:
        corpus = Corpus(root)
        corpus.change(
            finding(),
            lambda now, name=name: now and marked(now, State.NEW, name),
        )


def _find_again(root: Path, times: int) -> None:
    for number in range(times):
        corpus = Corpus(root)
        new = finding(n=9 + number, state=State.NEW, explanation=None)
        entry = FiledFinding(corpus, new)
        entry.save(finding(n=9 + number))
        entry.settle()


def test_marks_and_finds_of_several_processes_lose_nothing(tmp_path: Path) -> None:
    Corpus(tmp_path).save(finding())
    spawn = multiprocessing.get_context("fork")
    work: list[tuple[Any, Any]] = [
        (_mark_each, [f"{who}{n}" for n in CASES]) for who in "ab"
    ]
    work.append((_find_again, 4))
    processes = [spawn.Process(target=f, args=(tmp_path, a)) for f, a in work]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    [made] = held(tmp_path).values()
    notes = [change.note for change in made.history if change.marked]
    for who in "ab":
        assert [n for n in notes if n.startswith(who)] == [f"{who}{n}" for n in CASES]
    assert Corpus(tmp_path).check() == []
