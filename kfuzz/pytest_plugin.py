"""The pytest plugin: findings of a corpus as tests, and searches as tests.

It is loaded in every run of pytest where kfuzz is installed: what is slow to import
is imported by what needs it.
"""

import os
import shlex
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from kfuzz.core.errors import INTERPRET, NO_DRIVER

if TYPE_CHECKING:
    from kfuzz.core.finding import Finding
    from kfuzz.engine.config import ReplayResult
    from kfuzz.store.corpus import Stored

_FILE: Final = "finding.json"
_SANITIZE: Final = "--kfuzz-sanitize"
# What a report tells the summary at the end, also from a worker of xdist.
_TOLD: Final = "kfuzz"
_CORPUS: Final = pytest.StashKey[Path]()
_SECONDS: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kfuzz", "kfuzz: contracts of GPU kernels")
    group.addoption(
        "--kfuzz-corpus",
        metavar="DIR",
        help="Replay each finding of this corpus as a test. Known ones are expected to "
        "fail; flaky and unreproduced ones fail nothing.",
    )
    group.addoption(
        "--kfuzz-max-time",
        metavar="TIME",
        help="Most time for the search of one test: 90, 90s, 10m.",
    )
    group.addoption(
        _SANITIZE,
        action="store_true",
        help="Run these tests below `kfuzz sanitize`: without a GPU, each Triton "
        "launch interpreted and checked. A fault fails the run, not its test.",
    )


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run pytest once more, below `kfuzz sanitize`, if that is asked for.

    Raises:
        pytest.UsageError: if that feature is not there.
    """
    if not config.getoption("kfuzz_sanitize"):
        return None
    from kfuzz.app import main

    words = [w for w in config.invocation_params.args if w != _SANITIZE]
    return main(["sanitize", "-m", "pytest", *map(str, words)])


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, check the options, and collect the corpus too.

    Raises:
        pytest.UsageError: if an option cannot be obeyed.
    """
    config.addinivalue_line(
        "markers",
        "kfuzz(kernel, **options): search for violations of a bound kernel; "
        "@kfuzz.mark.falsify(kernel, max_cases=200) sets it",
    )
    if (limit := config.getoption("kfuzz_max_time")) is not None:
        config.stash[_SECONDS] = _seconds(limit)
    if (name := config.getoption("kfuzz_corpus")) is None:
        return
    folder = _folder(name, config.invocation_params.dir)
    config.stash[_CORPUS] = folder
    named = (argument.partition("::")[0] for argument in config.args)
    places = [Path(os.path.abspath(config.invocation_params.dir / n)) for n in named]
    if not any(place.is_relative_to(folder) for place in places):
        config.args.append(str(folder))


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> "FindingFile | None":
    """Collect a finding of the corpus."""
    folder = parent.config.stash.get(_CORPUS, None)
    if folder is None or file_path.name != _FILE:
        return None
    if file_path.parent.parent.parent != folder:
        return None
    made: FindingFile = FindingFile.from_parent(parent, path=file_path)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Search before the body of a test that asks for it, its fixtures set up."""
    for marker in item.iter_markers("kfuzz"):
        _falsify(item, marker.args, dict(marker.kwargs))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Add the way out where a test's own launch finds no GPU."""
    raised = call.excinfo and call.excinfo.value
    if isinstance(raised, RuntimeError) and NO_DRIVER in str(raised):
        raised.add_note(f"kfuzz: {INTERPRET}")


def pytest_unconfigure() -> None:
    """End the processes that were kept for the next search or replay."""
    zygotes = sys.modules.get("kfuzz.engine.workers.zygotes")
    if zygotes is not None:
        zygotes.end_all()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell what failed no test and should be known."""
    told: dict[str, None] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                found = (v for k, v in report.user_properties if k == _TOLD)
                told |= dict.fromkeys(found)
    if told:
        terminalreporter.section("kfuzz")
        for line in told:
            terminalreporter.write_line(line)


class FindingFile(pytest.File):
    """The finding.json of one entry: one test, named by the finding's id."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the test; none where the entry's format is a newer one."""
        from kfuzz.core.errors import DecodeError
        from kfuzz.store.corpus import read_entry
        from kfuzz.store.files import UnknownFormatError

        folder = self.path.parent
        name, problem = f"{folder.parent.name}-{folder.name}", ""
        try:
            if folder.is_symlink() or folder.parent.is_symlink():
                raise DecodeError(f"{folder}: is a link, which is not followed")
            name = read_entry(folder).id
        except UnknownFormatError:
            return
        except DecodeError as error:
            problem = str(error)
        yield FindingItem.from_parent(self, name=name, problem=problem)


class FindingItem(pytest.Item):
    """The replay of one finding.

    Attributes:
        problem: why it cannot be read, "" where it can.
    """

    def __init__(self, *, problem: str, **given: Any) -> None:
        super().__init__(**given)
        self.problem = problem

    def runtest(self) -> None:
        """Replay the finding.

        It fails if the finding does, or if a known one does not.
        """
        from kfuzz.core.errors import DecodeError
        from kfuzz.store.corpus import Stored, read_entry

        if self.problem:
            pytest.fail(self.problem, pytrace=False)
        folder = self.path.parent
        try:
            stored = Stored(read_entry(folder), folder)
        except DecodeError as error:
            pytest.fail(str(error), pytrace=False)
        result = self._replayed(stored)
        assert result.finding is not None
        self._judge(result, result.finding)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the test is, and its name."""
        return self.path, None, self.name

    def _replayed(self, stored: "Stored") -> "ReplayResult":
        from kfuzz.cli.project import open_project
        from kfuzz.core.errors import BackendError
        from kfuzz.engine.config import ReplayConfig
        from kfuzz.engine.replay import replay
        from kfuzz.execution.device.backends import resolve
        from kfuzz.targets.load import project_root

        try:
            resolve(stored.finding.device)
        except BackendError as error:
            pytest.skip(str(error))
        corpus = self.config.stash[_CORPUS]
        root = project_root(self.config.invocation_params.dir)
        config = ReplayConfig(
            root=root, corpus=corpus, keep=False, trusted=open_project(None).modules
        )
        return next(replay([stored], config, stop=threading.Event()))

    def _judge(self, result: "ReplayResult", finding: "Finding") -> None:
        from kfuzz.core.verdict import ReplayOutcome, State

        options = _options(self.config)
        if result.outcome is ReplayOutcome.ERROR:
            pytest.fail(f"could not be judged: {result.message}", pytrace=False)
        if result.is_excused:
            _tell(self, f"known {finding.id}{_reason(finding)}")
            pytest.xfail(f"known{_reason(finding)}")
        if result.is_known and result.seems_fixed:
            pytest.fail(
                f"[XPASS(strict)] known, and passes now: if it is fixed, "
                f"`kfuzz corpus mark {finding.id} fixed{options}`"
                f"{_differences(result)}",
                pytrace=False,
            )
        if finding.state in (State.FLAKY, State.UNREPRODUCED):
            runs = f"{result.failures} of {result.runs} runs fail"
            _tell(self, f"{finding.state} {finding.id}: {runs}")
            if result.reproduces:
                pytest.xfail(f"{finding.state}: {runs}")
        if result.reproduces:
            head, *lines = _shown(finding, options)
            runs = f"  replayed  {result.failures} of {result.runs} runs fail"
            text = "\n".join((head, runs, *lines))
            pytest.fail(text + _differences(result), pytrace=False)


def _falsify(
    item: pytest.Item, kernels: tuple[Any, ...], options: dict[str, Any]
) -> None:
    from kfuzz.api import falsify
    from kfuzz.core.errors import KfuzzError, UsageError
    from kfuzz.core.verdict import FAILS_RUN
    from kfuzz.store.corpus import Corpus

    limit = item.config.stash.get(_SECONDS, None)
    if limit is not None:
        asked = options.get("max_time")
        options["max_time"] = limit if asked is None else min(asked, limit)
    shown = _options(item.config)
    found: list[Finding] = []
    texts = []
    try:
        if options.get("corpus") is None:
            options["corpus"] = _project_corpus(item.config)
        else:
            shown = f" --corpus {shlex.quote(str(options['corpus']))}"
        try:
            Corpus(Path(options["corpus"])).require_writable()
        except UsageError as error:
            _tell(item, f"findings of {item.name} are not kept: {error}")
            options["corpus"] = None
        found = falsify(*kernels, **options)
    except KfuzzError as error:
        texts.append(str(error))
    for finding in found:
        if finding.state in FAILS_RUN:
            stored = options["corpus"] is not None
            texts.append("\n".join(_shown(finding, shown, stored=stored)))
        else:
            _tell(item, f"{finding.state} {finding.id}{_reason(finding)}")
    if texts:
        pytest.fail("\n\n".join(texts), pytrace=False)


def _shown(finding: "Finding", options: str, *, stored: bool = True) -> list[str]:
    """Return what a failing test shows of a finding."""
    from kfuzz.report.finding_view import finding_lines, view
    from kfuzz.report.tables import Shown

    made = view(Shown(finding.target.node_id, finding, ""), options)
    return finding_lines(made if stored else replace(made, replay=""))


def _differences(result: "ReplayResult") -> str:
    if not result.differences:
        return ""
    lines = "".join(f"\n  {line}" for line in result.differences)
    return f"\nthe environment differs from where it was found:{lines}"


def _reason(finding: "Finding") -> str:
    """Return why people know a finding, with the colon before it."""
    from kfuzz.report.tables import Shown
    from kfuzz.report.text import one_line

    shown = Shown("", finding, "")
    return f": {one_line(shown.reason)}" if finding.mark and shown.reason else ""


def _tell(item: pytest.Item, line: str) -> None:
    item.user_properties.append((_TOLD, line))


def _options(config: pytest.Config) -> str:
    """Return what a printed command needs to work on the same corpus."""
    name = config.getoption("kfuzz_corpus")
    return f" --corpus {shlex.quote(name)}" if name else ""


def _project_corpus(config: pytest.Config) -> Path:
    from kfuzz.cli.project import open_project

    given = config.stash.get(_CORPUS, None)
    return given if given is not None else open_project(None).corpus


def _folder(corpus: str, here: Path) -> Path:
    from kfuzz.cli.project import folder_of
    from kfuzz.core.errors import KfuzzError
    from kfuzz.store.mirror import is_url

    try:
        return folder_of(corpus if is_url(corpus) else os.path.abspath(here / corpus))
    except KfuzzError as error:
        raise pytest.UsageError(f"--kfuzz-corpus {corpus}: {error.what}") from None


def _seconds(text: str) -> float:
    from kfuzz.cli.settings import duration
    from kfuzz.core.errors import UsageError

    try:
        return duration(text, "--kfuzz-max-time")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
