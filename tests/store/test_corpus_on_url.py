"""A corpus on a URL: whatever writers and servers do, what was found is there once."""

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.errors import StorageError
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State
from kfuzz.store import mirror
from kfuzz.store import mirror as objects
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.life import enter, marked
from tests.helpers.findings import finding

Machine = Callable[[str], Corpus]


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = tmp_path / "shared" if request.param == "file" else uuid.uuid4().hex
    return f"{request.param}://{place}"


@pytest.fixture
def machine(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return what opens the corpus on a machine of this name."""

    def opened(name: str) -> Corpus:
        monkeypatch.setenv("KFUZZ_CACHE", str(tmp_path / name))
        return Corpus(mirror.opened(url))

    return opened


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(mirror, "_opened", {})


def held(corpus: Corpus) -> list[Finding]:
    entries = list(corpus.entries())
    assert all(isinstance(entry, Stored) for entry in entries), entries
    return [entry.finding for entry in entries if isinstance(entry, Stored)]


def test_what_one_machine_saves_the_next_one_has(machine: Machine) -> None:
    saved = [finding(), finding(kernel="other", n=300)]
    first = machine("one")
    for each in saved:
        first.save(each)
    mirror.finish()
    second = machine("two")
    assert held(second) == sorted(saved, key=lambda each: each.id)
    assert second.check() == []


def test_what_changes_or_goes_does_so_everywhere(machine: Machine) -> None:
    found = finding(explanation=None, state=State.NEW)
    one = machine("one")
    one.save(found)
    assert held(machine("two")) == [found]
    small = replace(finding(n=2), first=found.first, former=(found.id,))
    one.replace(found, small)
    two = machine("two")
    assert held(two) == [small]
    assert two.change(small, lambda now: None) is None
    assert held(machine("one")) == held(machine("three")) == []


def test_two_writers_lose_nothing_of_one_another(machine: Machine) -> None:
    common = finding(n=5)
    one, two = machine("one"), machine("two")
    one.save(common)
    two.save(marked(finding(n=2), State.FIXED, "mended"))
    one.save(finding(kernel="ours"))
    two.save(finding(kernel="theirs"))
    one, two = machine("one"), machine("two")
    for corpus in (one, two, machine("three")):
        kernels = [each.signature.kernel for each in held(corpus)]
        assert kernels == ["ours", "softmax", "theirs"]
        joined = corpus.find(common.id).finding
        assert joined.state is State.FIXED
        assert joined.input_elements == 2
    # Whoever writes next joins the two there as well.
    one.change(common, lambda now: now and enter(now, State.CONFIRMED, "again"))
    again = machine("four").find(common.id).finding
    assert [change.note for change in again.history][-2:] == ["mended", "again"]


def test_what_one_removes_and_the_other_changes_stays(machine: Machine) -> None:
    one = machine("one")
    one.save(finding())
    two = machine("two")
    one.change(finding(), lambda now: None)
    two.change(finding(), lambda now: now and marked(now, State.FIXED, "mended"))
    for name in ("one", "two", "three"):
        (left,) = held(machine(name))
        assert left.state is State.FIXED


def _versions(url: str) -> dict[str, set[str]]:
    found = objects.Objects(url).names()
    return {entry: digests for entry, digests in found.items() if "/" in entry}


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_half_a_version_is_never_read(
    url: str, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    one = machine("one")
    one.save(finding())
    one.save(finding(kernel="whole"))
    shared = Path(url.removeprefix("file://"))
    (path,) = (shared / finding().folder).iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    two = machine("two")
    assert [each.signature.kernel for each in held(two)] == ["whole"]
    assert "its content does not match its name" in caplog.text
    (problem,) = two.check()
    assert problem.what.startswith(f"{url}/{finding().folder}/")


@pytest.mark.parametrize("change", ["entry", "files", "format", "finding"])
def test_what_strangers_put_there_reaches_nothing(
    change: str, machine: Machine, url: str, tmp_path: Path
) -> None:
    one = machine("one")
    one.save(finding())
    there = objects.Objects(url)
    ((entry, (digest,)),) = _versions(url).items()
    (content,) = there.read([(entry, digest)]).values()
    document = json.loads(content)
    match change:
        case "entry":
            document["entry"] = "../../softmax"
        case "files":
            document["files"]["../../../evil"] = ""
        case "format":
            document["format"] = 2
        case "finding":
            document["files"]["finding.json"] = ""
    document["parents"] = [digest]
    there.create(entry, json.dumps(document).encode())
    two = machine("two")
    assert held(two) == [finding()]
    assert isinstance(two.check()[0], Problem)
    assert not list(tmp_path.rglob("evil"))


class Server:
    """What fails, as often as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fails: Callable[[int], bool] = lambda call: False
        real = objects.Objects._tried

        def tried(there: Any, what: str, act: Callable[[], Any]) -> Any:
            def once() -> Any:
                self.calls += 1
                if not self.fails(self.calls):
                    return act()
                if self.calls % 2:
                    act()  # done, and its answer is lost
                raise ConnectionError("reset by peer")

            return real(there, what, once)

        monkeypatch.setattr(objects.Objects, "_tried", tried)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_one_failure_in_three_loses_nothing(
    machine: Machine, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.fails = lambda call: call % 3 == 0
    saved = [finding(kernel=f"k{number}") for number in range(12)]
    one = machine("one")
    for each in saved:
        one.save(each)
    mirror.finish()
    assert held(machine("two")) == sorted(saved, key=lambda each: each.id)
    assert not caplog.records


def test_a_server_that_is_gone_is_told_and_the_next_command_writes(
    machine: Machine, url: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    one = machine("one")
    one.save(finding(kernel="before"))
    server.fails = lambda call: True
    caplog.set_level(logging.WARNING)
    for number in range(3):
        one.save(finding(kernel=f"k{number}"))
    assert len(caplog.records) == 1  # it is left alone for a while
    with pytest.raises(StorageError) as told:
        mirror.finish()
    for part in (url, "reset by peer", str(one.root), "the next command"):
        assert part in str(told.value)
    with pytest.raises(StorageError, match="reset by peer"):
        machine("one")
    assert len(held(one)) == 4
    server.fails = lambda call: False
    machine("one")
    assert len(held(machine("two"))) == 4


def test_a_folder_that_calls_itself_a_mirror_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFUZZ_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "corpora" / "x" / "findings"
    folder.mkdir(parents=True)
    folder.with_name("url").write_text("s3://stranger/bucket")
    assert Corpus(folder).mirror is None


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_verbs_work_on_it(
    url: str,
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'[tool.kfuzz]\ncorpus = "{url}"\n')
    machine("one").save(finding())
    Corpus(tmp_path / "local").save(finding(kernel="local"))
    monkeypatch.setenv("KFUZZ_CACHE", str(tmp_path / "two"))
    id = finding().id
    assert main(["corpus", "merge", "local"]) == 0
    assert main(["corpus", "mark", id, "known", "--reason", "#7"]) == 0
    assert main(["corpus", "check", "--corpus", url]) == 0
    assert "2 readable, 0 problems" in capsys.readouterr().out
    assert main(["config"]) == 0
    assert url in capsys.readouterr().out
    assert main(["show", id, "--corpus", url]) == 0
    assert f"kfuzz replay {id} --corpus {url}" in capsys.readouterr().out
    assert main(["corpus", "merge", url, "--corpus", "local"]) == 0
    assert len(held(Corpus(tmp_path / "local"))) == 2
    assert machine("three").find(id).finding.state is State.KNOWN
