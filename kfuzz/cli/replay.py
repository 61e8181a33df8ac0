"""kfuzz replay, kfuzz shrink and kfuzz repair: stored findings run again."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import (
    CorpusOption,
    EnvironmentOption,
    FormatOption,
    option,
    shared,
)
from kfuzz.cli.streams import (
    ExitCode,
    consume,
    note,
    print_each,
    print_report,
    report_stream,
    stopping,
)
from kfuzz.core.errors import DecodeError, NothingToRunError, UsageError
from kfuzz.core.features import INSTALLED, with_home
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ReplayOutcome
from kfuzz.engine.config import ReplayConfig
from kfuzz.report.json_report import problem_line
from kfuzz.report.text import one_line, table
from kfuzz.store.corpus import FINDING, Corpus, Problem, ProblemKind, Stored

if TYPE_CHECKING:
    from kfuzz.engine.repair import Repair
    from kfuzz.evaluation.locating import Draft

_DeviceOption = Annotated[
    str | None, shared("device", "Default: where each finding was found.")
]
_TrustOption = Annotated[
    bool,
    option(
        "--trust",
        "Import modules outside the project, too, where findings name them. Without "
        "it only those in `targets` of [tool.kfuzz].",
    ),
]
_TargetOption = Annotated[
    str,
    option(
        "--target",
        "Where the kernel is now, if it moved or the finding does not name a file: "
        "path.py::name.",
        metavar="TARGET",
    ),
]


def replay(
    findings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID|FILE|DIR",
            help="Ids, finding.json files, folders of findings; all of the corpus "
            "by default.",
        ),
    ] = None,
    times: Annotated[
        int, option("--times", "Runs of each finding.", settings.COUNT)
    ] = 3,
    device: _DeviceOption = None,
    corpus: CorpusOption = None,
    target: Annotated[
        str,
        option(
            "--target",
            "Run this kernel in place of the stored one: path.py::name, a module "
            "or package.module:name; without a name the one of the stored name.",
            metavar="TARGET",
        ),
    ] = "",
    trust: _TrustOption = False,
    script: Annotated[
        Path | None,
        option(
            "--script",
            "Write a self-contained script of one finding, and run nothing.",
            metavar="OUT.py",
        ),
    ] = None,
    upstream: Annotated[
        Path | None,
        option(
            "--upstream",
            "Write a script for the kernel's maintainers, and run nothing: the "
            "kernel's source and at most 30 lines, without kfuzz.",
            metavar="OUT.py",
        ),
    ] = None,
    sanitizer: Annotated[
        str,
        option(
            "--sanitizer",
            "Run the script of one finding on a GPU with Triton's own "
            "instrumentation (fpsan, gsan, consan, iisan; needs Triton 3.8), or under "
            "racecheck of compute-sanitizer.",
            metavar="MODE",
        ),
    ] = "",
    jobs: Annotated[
        int | None,
        shared(
            "jobs",
            "Findings side by side. Default: one for two processors, or for each GPU "
            "where any was found, or is replayed, on one; at most 8.",
        ),
    ] = None,
    fail_on: Annotated[
        str,
        shared(
            "fail-on",
            "Exit 1 on findings that are not known only, or on known ones too.",
        ),
    ] = "new",
    environment: EnvironmentOption = None,
    versions: Annotated[
        str,
        option(
            "--versions",
            "Only in those environments that have such a release: NAME==LOW..HIGH, or "
            "NAME==VERSION and what begins so.",
            metavar="RANGE",
        ),
    ] = "",
    format: FormatOption = "text",
) -> int:
    """Run stored findings again: FIXED, FAILS, FLAKY or ERROR for each.

    A known finding that fails is reported and fails no run; one marked fixed that fails
    becomes regressed. Where one passes, what differs from the environment in which it
    was found is printed. With --environment each runs in that one's own interpreter (a
    folder of packages: in this one), kfuzz itself from here, and a table says what
    came of it.

    Exit codes: 0 all fixed or known, 1 some fail or are flaky, 3 some could not be
    judged, 4 nothing to replay, 5 the machine has no such --device, 125 nothing could
    be judged, by which `git bisect run` skips a revision, 130 interrupted. Of several
    environments the worst: 1 before 3 and 125.
    """
    project = open_project(corpus)
    if environment or versions:
        given = {"device": device, "target": target, "corpus": project.place}
        words = [*(findings or ()), f"--times={times}", f"--fail-on={fail_on}"]
        words += [f"--{option}={value}" for option, value in given.items() if value]
        words += ["--trust"] * trust
        return _in_each(environment or (), versions, words, format)
    entries = _chosen(findings or [], project)
    if script is not None or upstream is not None:
        from kfuzz.engine import scripts

        def text(finding: Finding) -> str:
            if script is not None:
                return scripts.script(finding, target)
            return scripts.upstream(finding, project.root)

        path, name = (script, "--script") if script else (upstream, "--upstream")
        return _write_new(entries, Path(path or ""), text, name=name, form=format)
    config = _config(
        project, trust, times=times, device=device, target=target, jobs=jobs
    )
    if sanitizer:
        from kfuzz.engine.replay import SANITIZERS, sanitized

        if sanitizer not in SANITIZERS:
            fix = f"valid: {', '.join(SANITIZERS)}"
            raise UsageError(f"{sanitizer!r} is none", where="--sanitizer", fix=fix)
        finding = _only(entries, "--sanitizer")
        return (
            ExitCode.VIOLATION if sanitized(finding, config, sanitizer) else ExitCode.OK
        )
    return _replay(
        entries, config, format, on_known=fail_on == "any", options=project.options
    )


def shrink(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="The finding."),
    ],
    device: _DeviceOption = None,
    corpus: CorpusOption = None,
    target: _TargetOption = "",
    trust: _TrustOption = False,
) -> int:
    """Reduce a stored finding further and explain it again."""
    project = open_project(corpus)
    stored = project.store().find(id)
    config = _config(project, trust, device=device, target=target)

    from kfuzz.engine import replay as engine
    from kfuzz.report.terminal import TerminalReport

    with (
        report_stream() as out,
        stopping() as stop,
        TerminalReport(out, corpus=project.corpus_option, target=target) as report,
    ):
        consume(engine.shrink(stored, config, stop=stop), report.feed, stop)
        return ExitCode.INTERRUPTED if stop.is_set() else ExitCode.OK


def repair(
    id: Annotated[str, typer.Argument(metavar="ID", help="The finding.")],
    max_time: Annotated[
        str, shared("max-time", "For the search of each patch.")
    ] = "30s",
    apply: Annotated[
        bool, option("--apply", "Write the patch to the file; else none is written.")
    ] = False,
    choose: Annotated[
        int | None,
        option("--choose", "Of several patches the one to apply.", settings.COUNT),
    ] = None,
    device: _DeviceOption = None,
    corpus: CorpusOption = None,
    target: _TargetOption = "",
    trust: _TrustOption = False,
    format: FormatOption = "text",
) -> int:
    """Look for a patch of one expression with which a finding's kernel passes.

    For Triton kernels and torch functions. What mends the smallest case on the CPU, in
    Triton's interpreter, is held against stored cases and 50 drawn ones, then searched;
    and nothing that `kfuzz prove` proves of the kernel may be lost. Several patches
    that pass are all printed. The corpus keeps them for reports.

    Exit codes: 0 a patch passes, 1 none does, 2 usage, or nothing can be tried, 3
    internal error, 5 the machine has no such device, 130 interrupted.
    """
    project = open_project(corpus)
    stored = project.store().find(id)

    from kfuzz.cli.run import events
    from kfuzz.engine import repair as engine
    from kfuzz.report import json_report

    config = _config(project, trust, device=device, target=target)
    with report_stream() as out, stopping() as stop:
        made = engine.repaired(
            stored, config, events, seconds=settings.duration(max_time), stop=stop,
            report=note,
        )  # fmt: skip
        applied, problem = "", None
        if apply and made.drafts and not stop.is_set():
            try:
                applied = engine.apply(_of_several(made, choose), project.root)
            except UsageError as error:
                problem = error  # what was found is printed all the same
        if format == "json":
            document = json_report.repair_document(made, applied=applied)
            json_report.write({"interrupted": stop.is_set(), **document}, out)
        else:
            options = project.options + (f" --target {target}" if target else "")
            for line in json_report.repair_lines(made, options, applied):
                print(line, file=out)
    if problem is not None:
        raise problem
    if stop.is_set():
        return ExitCode.INTERRUPTED
    return ExitCode.OK if made.drafts else ExitCode.VIOLATION


def _of_several(made: "Repair", number: int | None) -> "Draft":
    """Return the patch to apply.

    Raises:
        UsageError: if there are several and none is chosen, or there is no such one.
    """
    count = len(made.drafts)
    if number is None and count > 1:
        fix = "read them, and choose one: --choose N"
        raise UsageError(f"{count} patches pass", where="--apply", fix=fix)
    if number is not None and number > count:
        what = f"there is no patch {number}, {count} passed"
        raise UsageError(what, where="--choose")
    return made.drafts[(number or 1) - 1]


def _config(project: Project, trust: bool, **more: Any) -> ReplayConfig:
    trusted = None if trust else project.modules
    return ReplayConfig(project.root, project.corpus, trusted=trusted, **more)


def _replay(
    entries: Sequence[Stored | Problem],
    config: ReplayConfig,
    form: str,
    *,
    on_known: bool,
    options: str,
) -> ExitCode:
    from kfuzz.engine.replay import replay  # with it comes Hypothesis
    from kfuzz.report.json_report import replay_document, replay_lines, replay_total

    results, interrupted = print_each(
        lambda stop: replay(entries, config, stop=stop),
        len(entries),
        form,
        lines=lambda result: replay_lines(result.event(), options=options),
        document=replay_document,
        total=lambda results: [replay_total([r.event() for r in results])],
    )
    if interrupted:
        return ExitCode.INTERRUPTED
    outcomes = {result.outcome for result in results}
    if outcomes == {ReplayOutcome.ERROR}:
        return ExitCode.UNJUDGED
    if ReplayOutcome.ERROR in outcomes or len(results) < len(entries):
        return ExitCode.INTERNAL
    failing = any(r.reproduces and (on_known or not r.is_excused) for r in results)
    return ExitCode.VIOLATION if failing else ExitCode.OK


# Asked of an environment's own interpreter, which may lack kfuzz's requirements.
_LIST_RELEASES: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({d.name.lower(): d.version for d in reversed([*distributions()])}))
"""
_SILENT: Final = {"id": "", "outcome": "ERROR", "message": "kfuzz says nothing there"}


def _in_each(
    folders: Sequence[Path], versions: str, words: Sequence[str], form: str
) -> ExitCode:
    """Replay findings in environments, and print what came of it there.

    Raises:
        UsageError: if a folder is no environment, and holds none.
        NothingToRunError: if none has such a release.
    """
    name, _, wanted = versions.partition("==")
    rows: list[dict[str, Any]] = []
    for folder in environments_in(folders):
        own, python = folder / "bin" / "python", sys.executable
        given = [os.environ.get("PYTHONPATH", "")]
        if own.exists():
            python = str(own.absolute())
        else:
            given.insert(0, str(folder.resolve()))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, given))}
        if not INSTALLED:  # else it has kfuzz of its own, or none
            environment = with_home(environment)
        ask = partial(subprocess.run, env=environment, capture_output=True, text=True)
        has = json.loads(ask([python, "-P", "-c", _LIST_RELEASES]).stdout or "{}")
        if versions and not _is_among(has.get(name, ""), wanted):
            continue
        done = ask([python, "-P", "-m", "kfuzz", "replay", *words, "--format=json"])
        try:
            results, code = json.loads(done.stdout)["results"], done.returncode
        except ValueError:
            said = done.stderr.strip().splitlines()[-1:]
            results = [{**_SILENT, "message": m} for m in said] or [_SILENT]
            code = ExitCode.UNJUDGED
        shown = {n: has.get(n) for n in dict.fromkeys((name or "triton", "torch"))}
        made = {"environment": str(folder), "exit": code, "results": results}
        rows.append({**made, "has": shown})
    if not rows:
        raise NothingToRunError("no environment has such a release", where=versions)
    print_report(form, lambda: {"environments": rows}, lambda: _table(rows))
    codes = {row["exit"] for row in rows}
    return ExitCode.VIOLATION if 1 in codes else ExitCode(max(codes))


def environments_in(given: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders that are environments, or lie in a given one and are some."""
    for each in given:
        inside = [each, *sorted(filter(Path.is_dir, each.glob("*")))]
        some = [f for f in inside if [*f.glob("bin/python"), *f.glob("*.dist-info")]]
        if not some:
            raise UsageError("there is no environment", where=str(each))
        yield from some[:1] if some[0] == each else some


def _is_among(version: str, wanted: str) -> bool:
    """Whether a version lies in LOW..HIGH, or begins as a single one does."""
    low, dots, high = wanted.partition("..")
    have, least, most = (
        [int(n) for n in re.findall(r"\d+", text.partition("+")[0])]
        for text in (version, low, high if dots else low)
    )
    return bool(have) and have[: len(least)] >= least and have[: len(most)] <= most


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [("environment", *rows[0]["has"], "outcome", "finding")]
    for row in rows:
        has = [str(version or "none") for version in row["has"].values()]
        for r in row["results"]:
            text = r["message"] if r["outcome"] == ReplayOutcome.ERROR else r["id"]
            cells.append((row["environment"], *has, r["outcome"], one_line(text)))
    return table(cells)


def _only(entries: Sequence[Stored | Problem], name: str) -> Finding:
    """Return the one finding that a script is for."""
    if len(entries) != 1:
        raise UsageError(
            f"a script holds one finding, {len(entries)} are chosen",
            where=name,
            fix="give one id; `kfuzz corpus list` names them",
        )
    stored = entries[0]
    if isinstance(stored, Problem):
        raise DecodeError(stored.what)
    return stored.finding


def _write_new(
    entries: Sequence[Stored | Problem],
    path: Path,
    script: Callable[[Finding], str],
    *,
    name: str,
    form: str,
) -> ExitCode:
    from kfuzz.report.files import write_new

    finding = _only(entries, name)
    text, where = script(finding), f"{name} {path}"
    try:
        # Never over what is there: one slip would cost a kernel's source.
        write_new(path, text)
    except FileExistsError:
        fix = "remove it or choose another name"
        raise UsageError("is there already", where=where, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be written: {reason}", where=where) from None
    print_report(
        form,
        lambda: {"id": finding.id, "script": str(path)},
        lambda: [f"wrote {path}: run it with `python {path}`"],
    )
    return ExitCode.OK


def _chosen(names: Sequence[str], project: Project) -> list[Stored | Problem]:
    """Return the entries that the names select, each once, in order.

    Args:
        names: ids, finding.json files, folders of one or of many findings;
            none selects the whole corpus.
        project: its corpus holds the ids.

    Entries of a format that this version does not know are skipped with a note,
    unless they are named one by one.

    Raises:
        UsageError: if a name selects nothing.
        NothingToRunError: if the corpus is empty.
    """
    found: dict[Path, Stored | Problem] = {}
    if not names:
        found = {entry.path: entry for entry in project.store().entries()}
    for name in names:
        for entry in _named(name, project):
            found.setdefault(Path(os.path.abspath(entry.path)), entry)
    for path, entry in list(found.items()):
        if isinstance(entry, Problem) and entry.kind is ProblemKind.FORMAT:
            typer.echo(f"kfuzz: skipped: {problem_line(entry)}", err=True)
            del found[path]
    if not found:
        raise NothingToRunError(
            "no finding to replay",
            where=str(project.corpus),
            fix="`kfuzz run` stores what it finds there",
        )
    return list(found.values())


def _named(name: str, project: Project) -> Iterator[Stored | Problem]:
    if os.path.isdir(name) and not os.path.isfile(Path(name) / FINDING):
        inside = list(_inside(Path(name)))
        yield from inside
        if inside:
            return  # else an id may be meant that a folder happens to share
    try:
        yield project.store().find(name)
    except DecodeError as error:
        place = Path(name).parent if Path(name).name == FINDING else Path(name)
        for entry in project.store().entries():
            if "-".join(entry.path.parts[-2:]).startswith(name):
                place = entry.path
        yield Problem(place, str(error), ProblemKind.DAMAGED)


def _inside(folder: Path) -> Iterator[Stored | Problem]:
    """Return the entries of a corpus, or of one kernel's folder in it."""
    if any(folder.glob(f"*/{FINDING}")):
        own = folder.resolve()
        return Corpus(own.parent).entries(own.name)
    return Corpus(folder).entries()
