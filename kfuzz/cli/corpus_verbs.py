"""kfuzz corpus … and kfuzz show: the store, read and kept up without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import open_project
from kfuzz.cli.streams import report_stream
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.verdict import Feature, State
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.maintenance import Deed, Did

OLDER_THAN: Final = "30d"
_MARKS: Final = ("known", "fixed", "new")

corpus_app = typer.Typer(
    help="Look at stored findings, and keep them up.",
    rich_markup_mode=None,
    add_completion=False,
)


@corpus_app.command("list")
def list_(
    corpus: options.CorpusOption = None, format: options.FormatOption = "text"
) -> int:
    """List every stored finding."""
    from kfuzz.report import corpus_lists
    from kfuzz.report.drawing import shown_path

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    _must_exist(corpus, project.corpus.is_dir())
    entries = list(project.store().summaries())
    with report_stream() as out:
        if as_json:
            from kfuzz.report import json_report

            json_report.write(corpus_lists.corpus_document(entries), out)
            return ExitCode.OK
        lines = corpus_lists.corpus_lines(entries)
        for line in lines or [f"no finding in {shown_path(project.corpus)}"]:
            print(line, file=out)
        for _, entry in entries:
            if isinstance(entry, Problem):
                text = f"kfuzz: skipped: {corpus_lists.problem_line(entry)}"
                typer.echo(text, err=True)
    return ExitCode.OK


@corpus_app.command()
def check(
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First finish or clear away what killed writers left, and give "
            "misplaced entries their place; what cannot be read stays.",
        ),
    ] = False,
) -> int:
    """Check that every stored finding can be read; exit 1 if one cannot."""
    from kfuzz.report import corpus_lists, json_report

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    _must_exist(corpus, project.corpus.is_dir())
    problems = project.store().check(repair=repair)
    whole = sum(isinstance(entry, Stored) for entry in project.store().entries())
    with report_stream() as out:
        if as_json:
            shown = [corpus_lists.problem_document(problem) for problem in problems]
            json_report.write({"readable": whole, "problems": shown}, out)
        else:
            for problem in problems:
                print(corpus_lists.problem_line(problem), file=out)
            n = len(problems)
            word = "problem" if n == 1 else "problems"
            print(f"{whole} readable, {n} {word}", file=out)
    return ExitCode.VIOLATION if problems else ExitCode.OK


@corpus_app.command()
def mark(
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", help="Ids, beginnings of them, finding.json."),
    ],
    state: Annotated[
        str, typer.Argument(metavar="known|fixed|new", help="The state it is in now.")
    ],
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why, for the history; a known finding needs one.",
            show_default=False,
        ),
    ] = "",
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="URL",
            help="Where there is more, such as an issue: http or https.",
            show_default=False,
        ),
    ] = "",
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            metavar="tail,nan",
            help="Known only where all these are needed; without any, wherever kernel, "
            "contract, kind and output are the same.",
            show_default=False,
        ),
    ] = None,
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
) -> int:
    """Say what people know of findings.

    known: it is told when it is seen again and fails nothing; that it passes is told.
    fixed: if it fails again it has regressed, and fails. new: neither any more.
    """
    from kfuzz.store import maintenance as upkeep

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    given = State(options.choice(state, _MARKS, "the state"))
    for option, text in (("--reason", reason), ("--link", link)):
        _require_plain(option, text)
    if link and not link.startswith(("http://", "https://")):
        raise UsageError(f"{link!r:.60} is no http or https address", where="--link")
    store = open_project(corpus).store()
    entries = [store.find(id) for id in dict.fromkeys(ids)]
    deeds = upkeep.mark(
        store,
        entries,
        given,
        reason=reason.strip(),
        link=link,
        features=_features(features or ()),
    )
    _tell(deeds, as_json=as_json)
    return ExitCode.OK


@corpus_app.command()
def merge(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="DIR", help="Other corpora; they stay as they are."),
    ],
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
) -> int:
    """Take in findings from other corpora, such as another machine's.

    Of one bucket the smaller minimum stays. Histories are joined, and the state is
    what they lead to: the later mark holds, and what failed after it was fixed has
    regressed. Exit 1 if an entry could not be taken in.
    """
    from kfuzz.store import maintenance as upkeep

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    own = project.corpus
    for name in folders:
        if not Path(name).is_dir():
            raise UsageError("no such folder", where=name)
        if own.is_dir() and own.samefile(name):
            raise UsageError("is the corpus itself", where=name)
    store, deeds = project.store(), list[Deed]()
    for name in folders:
        deeds += upkeep.merge(store, Corpus(Path(name)))
    _tell(deeds, as_json=as_json)
    skipped = any(deed.did is Did.SKIPPED for deed in deeds)
    return ExitCode.VIOLATION if skipped else ExitCode.OK


@corpus_app.command()
def prune(
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Since when fixed ones are: 12h, 30d, 8w.",
        ),
    ] = OLDER_THAN,
    yes: Annotated[
        bool,
        typer.Option("--yes/--dry-run", help="Do it; else it is only said what goes."),
    ] = False,
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
) -> int:
    """Drop findings that are over.

    Those fixed long since, those that never reproduced, and of several in one bucket
    all but one, which takes over their history.
    """
    from kfuzz.store import maintenance as upkeep

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    seconds = options.age(older_than, "--older-than")
    project = open_project(corpus)
    _must_exist(corpus, project.corpus.is_dir())
    deeds = upkeep.prune(project.store(), older_than=seconds, apply=yes)
    _tell(deeds, as_json=as_json, done=yes)
    return ExitCode.OK


def show(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="An id, its beginning, or a finding.json."),
    ],
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
) -> int:
    """Show everything about one finding."""
    from kfuzz.report import json_report
    from kfuzz.report.finding_view import finding_page, view
    from kfuzz.report.gathered import Shown

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    stored = project.store().find(id)
    with report_stream() as out:
        if as_json:
            json_report.write(json_report.finding_document(stored), out)
            return ExitCode.OK
        found = stored.finding
        shown = Shown(found.target.node_id, found, str(stored.path))
        for line in finding_page(view(shown, project.options)):
            print(line, file=out)
    return ExitCode.OK


def _tell(deeds: Sequence[Deed], *, as_json: bool, done: bool = True) -> None:
    from kfuzz.report import corpus_lists

    with report_stream() as out:
        if as_json:
            from kfuzz.report import json_report

            document = corpus_lists.deeds_document(deeds, done=done)
            json_report.write(document, out)
            return
        for deed in deeds:
            print(corpus_lists.deed_line(deed, done=done), file=out)
        print(corpus_lists.deeds_line(deeds), file=out)
        if deeds and not done:
            print("nothing was done: --yes does it", file=out)


def _features(texts: Sequence[str]) -> list[Feature]:
    names = [name.strip() for text in texts for name in text.split(",")]
    valid = [str(feature) for feature in Feature]
    for name in names:
        if name not in valid:
            fix = suggestion(name, valid)
            raise UsageError(f"{name!r:.40} is no feature", where="--features", fix=fix)
    return [Feature(name) for name in dict.fromkeys(names)]


def _require_plain(option: str, text: str) -> None:
    if not text.isprintable():
        raise UsageError("holds control characters", where=option)


def _must_exist(option: str | None, exists: bool) -> None:
    if option is not None and not exists:
        raise UsageError("no such folder", where=f"--corpus {option}")
