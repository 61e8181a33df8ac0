"""The corpus store: what is saved is found again, whatever happens in between."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from kfuzz.core.errors import DecodeError, HarnessError, UsageError
from kfuzz.core.finding import Change, Explanation, Finding, Target
from kfuzz.core.recipe import Case, Destination, TensorSpec
from kfuzz.core.verdict import Feature, State
from kfuzz.store import corpus as entry
from kfuzz.store import files as durable
from kfuzz.store.corpus import (
    FINDING,
    FIRST,
    INPUTS,
    Corpus,
    Problem,
    ProblemKind,
    Stored,
    files_of,
    read_entry,
)
from tests.helpers.findings import finding, findings, pinned

ROOT = Path(__file__).parents[2]


def found(corpus: Corpus) -> list[Finding]:
    """Return the findings; fail if anything in the corpus is not one."""
    entries = list(corpus.entries())
    assert all(isinstance(e, Stored) for e in entries), entries
    return [e.finding for e in entries if isinstance(e, Stored)]


def problem(corpus: Corpus) -> Problem:
    """Return the only entry, which must be unreadable."""
    (only,) = corpus.entries()
    assert isinstance(only, Problem)
    return only


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def unexplained(n: int = 3) -> Finding:
    return finding(n=n, explanation=None, state=State.NEW)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(findings())
def test_any_finding_comes_back_equal(tmp_path_factory: Any, value: Finding) -> None:
    corpus = Corpus(tmp_path_factory.mktemp("corpus"))
    path = corpus.save(value)
    assert found(corpus) == [value]
    assert path == corpus.root / value.folder
    assert corpus.find(value.id) == Stored(value, path)
    assert corpus.check() == []


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    Corpus(tmp_path).save(finding())
    code = (
        "import sys; from pathlib import Path; from kfuzz.store.corpus import Corpus\n"
        f"[entry] = Corpus(Path({str(tmp_path)!r})).entries()\n"
        "print(entry.finding.id, {'torch', 'numpy', 'hypothesis'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"{finding().id} set()", done.stderr


def test_shrinking_replaces_in_place_and_explaining_moves_the_folder(
    tmp_path: Path,
) -> None:
    corpus = Corpus(tmp_path)
    first = corpus.save(unexplained(300))
    assert corpus.replace(unexplained(300), unexplained(5)) == first
    assert found(corpus) == [unexplained(5)]
    last = corpus.replace(unexplained(5), finding())
    assert last == tmp_path / finding().folder != first
    assert found(corpus) == [finding()]
    assert not first.exists()
    assert corpus.check() == []


def test_a_finding_without_pinned_values_drops_the_old_ones(tmp_path: Path) -> None:
    corpus, recipe = Corpus(tmp_path), finding(case=finding().first)
    corpus.save(finding())
    path = corpus.save(recipe)
    assert found(corpus) == [recipe]
    assert not (path / INPUTS).exists()


@pytest.mark.parametrize(("known_n", "found_n", "kept"), [(3, 9, 3), (9, 3, 3)])
def test_of_one_bucket_the_smaller_minimum_stays(
    tmp_path: Path, known_n: int, found_n: int, kept: int
) -> None:
    corpus = Corpus(tmp_path)
    later = (Change(State.CONFIRMED, "2026-02-02T00:00:00Z"),)
    corpus.save(finding(n=known_n))
    corpus.save(unexplained())
    corpus.replace(unexplained(), finding(n=found_n, history=later))
    (only,) = found(corpus)
    assert only.case.elements == kept
    assert only.history == finding().history  # found again is no news
    assert corpus.check() == []


@pytest.mark.parametrize(
    ("known", "new", "state", "elements"),
    [
        (State.KNOWN, State.CONFIRMED, State.KNOWN, 3),
        (State.FIXED, State.CONFIRMED, State.REGRESSED, 9),
        (State.CONFIRMED, State.FLAKY, State.CONFIRMED, 3),
        (State.UNREPRODUCED, State.FLAKY, State.FLAKY, 3),
    ],
)
def test_states_merge_without_losing_what_is_sure(
    tmp_path: Path, known: State, new: State, state: State, elements: int
) -> None:
    corpus = Corpus(tmp_path)
    corpus.save(finding(state=known))
    corpus.replace(unexplained(), finding(n=9, state=new))
    (only,) = found(corpus)
    assert (only.state, only.case.elements) == (state, elements)


def test_find_takes_ids_prefixes_and_paths(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    corpus.save(finding(kernel="softmax_v2"))
    for name in (finding().id, finding().id[:-2], str(path), str(path / FINDING)):
        assert corpus.find(name).finding == finding()
    with pytest.raises(UsageError, match="beginning of 2 ids"):
        corpus.find("softmax")
    with pytest.raises(UsageError, match=f"did you mean {finding().id}"):
        corpus.find("sofmax-C-PRC-01")
    for nothing in ("", "zzz", "\0", "a/b", "x" * 5000):
        with pytest.raises(UsageError, match="no finding"):
            corpus.find(nothing)


@pytest.mark.parametrize(
    "kernel",
    ["../../etc", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "<lambda>", "größe",
     "-rf", ".tmp-x", "x" * 300, "a b; rm"],
)  # fmt: skip
def test_kernel_names_stay_inside_the_corpus(tmp_path: Path, kernel: str) -> None:
    corpus = Corpus(tmp_path / "corpus")
    path = corpus.save(finding(kernel=kernel))
    assert path.parent.parent == corpus.root
    assert path.resolve().is_relative_to(corpus.root.resolve())
    (stored,) = found(corpus)
    assert stored.signature.kernel == kernel
    assert set(stored.id) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
    )
    assert not stored.id.startswith("-")
    assert corpus.find(stored.id).path == path
    assert os.listdir(tmp_path) == ["corpus"]


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"file": "../../home/x.py"}, "target.file"),
        ({"file": "/etc/x.py"}, "target.file"),
        ({"file": "a/../../x.py"}, "target.file"),
        ({"file": "..\\x.py"}, "target.file"),
        ({"file": "a\0.py"}, "target.file"),
        ({"module": "os;x"}, "target.module"),
        ({"module": "..evil"}, "target.module"),
        ({"name": "\x1b[2J"}, "target.name"),
    ],
)
def test_a_target_outside_the_project_is_refused(
    tmp_path: Path, target: dict[str, str], field: str
) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    edit(path / FINDING, lambda d: d["target"].update(target))
    bad = problem(corpus)
    assert bad.kind is ProblemKind.DAMAGED
    assert f"{path / FINDING}: {field}" in bad.what
    fields = {"file": "", "name": "f", **target}
    with pytest.raises(HarnessError, match=field):
        Corpus(tmp_path / "other").save(finding(target=Target(**fields)))


# What a terminal, an editor or Python may take for the end of a line.
ENDS = ("\n", "\r", "\x0c", "\x85", "\u2028", "\x1b[2J")


@pytest.mark.parametrize("end", ENDS)
def test_names_of_several_lines_are_refused(tmp_path: Path, end: str) -> None:
    name = f"x{end}print()"
    made = finding()
    case = made.case
    spec = case.tensors["x"]
    place = Destination((1, 3), "float32", (3, 1))
    named = (
        replace(case, tensors={name: spec}),
        replace(case, tensors={"x": replace(spec, axes=("M", name))}),
        replace(case, scalars={name: 1}),
        replace(case, destinations={name: place}),
    )
    changes: list[dict[str, Any]] = [{"case": c} for c in named]
    changes += [{"first": c} for c in named]
    changes += [
        {"failure": replace(made.failure, output=name)},
        {"declaration": replace(made.declaration, inplace=(name,))},
        {"declaration": replace(made.declaration, out=(name,))},
        {"declaration": replace(made.declaration, configs=({name: 1},))},
    ]
    for number, change in enumerate(changes):
        with pytest.raises(HarnessError, match="control characters"):
            Corpus(tmp_path / "mine").save(replace(made, **change))
        theirs = tmp_path / str(number)
        theirs.mkdir()
        for file, content in files_of(replace(made, **change)).items():
            (theirs / file).write_bytes(content)
        with pytest.raises(DecodeError, match="control characters"):
            read_entry(theirs)


@pytest.mark.parametrize(
    "change", [{"dtype": "float32 or print()"}, {"strides": [1]}, {"offset": -1}]
)
def test_destinations_that_cannot_be_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    places = {"out": Destination((1, 3), "float32", (3, 1))}
    corpus = Corpus(tmp_path)
    case = replace(finding().case, destinations=places)
    path = corpus.save(finding(case=case))
    edit(path / FINDING, lambda d: d["case"]["destinations"]["out"].update(change))
    assert "case.destinations.out" in problem(corpus).what


def test_an_unknown_format_is_skipped_and_never_touched(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    edit(path / FINDING, lambda d: d.update(format=2, colour="new"))
    before = (path / FINDING).read_bytes()
    assert problem(corpus).kind is ProblemKind.FORMAT
    assert "format 2 is not known" in problem(corpus).what
    with pytest.raises(HarnessError, match="will not be overwritten"):
        corpus.save(finding())
    with pytest.raises(HarnessError, match="will not be overwritten"):
        corpus.replace(unexplained(), finding())
    corpus.repair()
    assert (path / FINDING).read_bytes() == before
    with pytest.raises(DecodeError, match="format 2"):
        corpus.find(finding().id)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON"),
        (b'{"format": 1', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not an object"),
        (b"{}", "format: missing field"),
        (b'{"format": true}', "format True"),
        (b'{"format": 1}', "missing field"),
        (b'{"format": 1, "seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\x80\x04.", "not JSON"),
    ],
)
def test_a_bad_finding_json_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    (path / FINDING).write_bytes(content)
    assert what in problem(corpus).what
    assert str(path / FINDING) in problem(corpus).what
    with pytest.raises(DecodeError, match=what):
        corpus.find(finding().id)
    corpus.repair()
    assert (path / FINDING).read_bytes() == content


def test_a_finding_json_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    whole = (path / FINDING).read_bytes().rstrip()
    for length in range(0, len(whole), 37):
        (path / FINDING).write_bytes(whole[:length])
        assert problem(corpus).kind is ProblemKind.DAMAGED


@pytest.mark.parametrize("n", [3, 300])
def test_inputs_that_do_not_belong_are_refused(tmp_path: Path, n: int) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding(n=n))
    good = (path / INPUTS).read_bytes()
    for bad in (b"", good[:-1], good + b"\0", b"\xff" * 20, good[:-1] + b"\1"):
        (path / INPUTS).write_bytes(bad)
        assert str(path / INPUTS) in problem(corpus).what
    (path / INPUTS).unlink()
    assert "missing" in problem(corpus).what


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (pinned(bytes(8)), "differ"),
        (TensorSpec((3, 1), ("M", "N"), "float32", values=bytes(12)), "shape"),
        (TensorSpec((1, 3), ("M", "N"), "int32", values=bytes(12)), "dtype"),
    ],
)
def test_inputs_of_another_case_are_refused(
    tmp_path: Path, spec: TensorSpec, what: str
) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    other = Corpus(tmp_path / "o").save(finding(case=Case({"x": spec})))
    shutil.copy(other / INPUTS, path / INPUTS)
    edit(path / FINDING, lambda d: d.pop("inputs"))
    shutil.rmtree(tmp_path / "o")
    assert what in problem(corpus).what
    assert f"{path / INPUTS}: header.x" in problem(corpus).what


@pytest.mark.parametrize("name", [FINDING, INPUTS, FIRST])
def test_links_pipes_and_folders_in_place_of_files_are_refused(
    tmp_path: Path, name: str
) -> None:
    corpus = Corpus(tmp_path / "corpus")
    path = corpus.save(finding())
    outside = tmp_path / "outside"
    os.rename(path / name, outside)
    (path / name).symlink_to(outside)
    assert "is a link" in problem(corpus).what
    (path / name).unlink()
    os.mkfifo(path / name)
    assert "not a plain file" in problem(corpus).what
    (path / name).unlink()
    (path / name).mkdir()
    assert "not a plain file" in problem(corpus).what


def test_folders_that_lead_outside_are_not_followed(tmp_path: Path) -> None:
    outside = Corpus(tmp_path / "outside").save(finding())
    corpus = Corpus(tmp_path / "corpus")
    place = corpus.root / finding().folder
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    assert "is a link" in problem(corpus).what
    with pytest.raises(HarnessError, match="is a link"):
        corpus.save(finding(n=9))
    assert found(Corpus(tmp_path / "outside")) == [finding()]


def test_a_damaged_entry_is_healed_by_finding_it_again(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    (path / FINDING).write_bytes(b"{")
    corpus.save(finding())
    assert found(corpus) == [finding()]


@pytest.mark.parametrize("change", ["new", "update", "move", "merge"])
def test_a_full_disk_at_any_write_keeps_what_was_there(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    for failing in range(40):
        corpus = Corpus(tmp_path / str(failing))
        old = unexplained(300)
        before = {"new": [], "merge": [old, finding(n=9)]}.get(change, [old])
        for value in before:
            corpus.save(value)
        new = unexplained(5) if change == "update" else finding()
        writes = 0

        def fsync(handle: int, failing: int = failing) -> None:
            nonlocal writes
            writes += 1
            if writes > failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        caught = None
        try:
            corpus.save(new) if change == "new" else corpus.replace(old, new)
        except HarnessError as error:
            caught = error
        monkeypatch.setattr(os, "fsync", real)
        if caught is not None:
            assert "No space left" in caught.what
            assert "free some space" in caught.fix
            left = found(Corpus(corpus.root))
            # Each entry is there in its old or its new form.
            assert len(left) >= len(before) - (change == "merge")
            assert all(value in [*before, new] for value in left), failing
        else:
            assert found(corpus) == [new]
            assert failing > 3
            return
    pytest.fail("never succeeded")


def test_a_reader_never_sees_half_of_a_change(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.save(finding(n=300))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for n in (301, 302, 3):
                corpus.save(finding(n=n))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert len(found(Corpus(tmp_path))) == 1
    finally:
        stop.set()
        writer.join()


def test_a_reader_between_two_files_of_a_change_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(tmp_path)
    corpus.save(finding(n=300))
    real, changed = entry._read_inputs, [finding(n=301)]

    def read_inputs(folder: Path, said: Any) -> Any:
        if changed:
            corpus.save(changed.pop())
        return real(folder, said)

    monkeypatch.setattr(entry, "_read_inputs", read_inputs)
    assert found(Corpus(tmp_path)) == [finding(n=301)]


def test_dying_while_a_merged_entry_is_removed_leaves_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(tmp_path)
    corpus.save(finding())
    corpus.save(unexplained(300))

    def rmtree(folder: Path, **_: Any) -> None:
        (folder / INPUTS).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(KeyboardInterrupt):
        corpus.replace(unexplained(300), finding())
    monkeypatch.undo()
    assert found(corpus) == [finding()]


def test_what_killed_writers_leave_is_reported_and_cleared(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    shutil.copytree(path, tmp_path / ".tmp-dead")
    (path / ".staged-dead").write_bytes(b"half")
    misplaced = path.with_name("C-PRC-01-new-00000000")
    corpus.save(finding(kernel="other"))
    os.rename(path, misplaced)
    kinds = [p.kind for p in corpus.check()]
    assert sorted(kinds) == ["leftover", "leftover", "misplaced"]
    done = corpus.repair()
    assert sorted(line.split()[0] for line in done) == ["finished", "moved", "removed"]
    assert corpus.check() == corpus.repair() == []
    assert {f.signature.kernel for f in found(corpus)} == {"softmax", "other"}
    assert not list(tmp_path.rglob(".*"))


def test_a_stuck_writer_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "LOCK_SECONDS", 0.05)
    with durable.exclusive(tmp_path) as alone:
        assert alone
        with pytest.raises(HarnessError, match="another process"):
            Corpus(tmp_path).save(finding())


def test_a_finding_that_is_shrunk_further_is_found_by_its_old_ids(
    tmp_path: Path,
) -> None:
    corpus = Corpus(tmp_path)
    forms = [
        finding(n=n, explanation=Explanation(features))
        for n, features in (
            (9, ()),
            (5, (Feature.TAIL,)),
            (3, (Feature.TAIL, Feature.NAN)),
        )
    ]
    corpus.save(forms[0])
    corpus.replace(forms[0], forms[1])
    corpus.replace(forms[1], forms[2])
    corpus.replace(forms[2], forms[2])
    assert len({form.id for form in forms}) == 3
    for form in forms:
        assert corpus.find(form.id).finding.id == forms[2].id
    # A finding of that id comes before one that had it.
    corpus.save(forms[0])
    assert corpus.find(forms[0].id).finding.id == forms[0].id


def test_a_corpus_that_cannot_be_written_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only folder and a file in its place end with one exit code."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        Corpus(tmp_path / "file" / "corpus").require_writable()

    def refuse(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(UsageError, match="Read-only file system"):
        Corpus(tmp_path).require_writable()


@pytest.mark.parametrize(
    "reference", [{"file": "/etc/passwd"}, {"file": "../x"}, {}, {"file": [INPUTS]}]
)
def test_values_may_refer_to_no_other_file(tmp_path: Path, reference: Any) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())

    def refer(document: Any) -> None:
        document["case"]["tensors"]["x"]["values"] = reference

    edit(path / FINDING, refer)
    assert "case.tensors.x.values: may only refer" in problem(corpus).what


def test_a_folder_without_finding_json_is_reported_not_deleted(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    path = corpus.save(finding())
    (path / FINDING).unlink()
    assert found(corpus) == []
    assert corpus.repair() == []
    (only,) = corpus.check()
    assert only.kind is ProblemKind.DAMAGED
    assert (path / FIRST).exists()


def test_a_lone_finding_json_is_enough(tmp_path: Path) -> None:
    path = Corpus(tmp_path / "a").save(finding())
    copy = tmp_path / "mail" / FINDING
    copy.parent.mkdir()
    shutil.copy(path / FINDING, copy)
    edit(copy, lambda d: d.pop("inputs"))
    stored = Corpus(tmp_path / "none").find(str(copy))
    assert stored.finding == replace(finding(), first=finding().case)


def test_the_next_writer_clears_up_unasked(tmp_path: Path) -> None:
    path = Corpus(tmp_path).save(finding())
    shutil.copytree(path, tmp_path / ".tmp-dead")
    Corpus(tmp_path).save(finding(kernel="other"))
    assert not (tmp_path / ".tmp-dead").exists()
