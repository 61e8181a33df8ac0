"""kfuzz corpus list|check and kfuzz show: the store, read without torch."""

from typing import Annotated

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import open_project
from kfuzz.cli.streams import report_stream
from kfuzz.core.errors import UsageError
from kfuzz.corpus import Problem, Stored

corpus_app = typer.Typer(
    help="Look at stored findings.", rich_markup_mode=None, add_completion=False
)


@corpus_app.command("list")
def list_(
    corpus: options.CorpusOption = None, format: options.FormatOption = "text"
) -> int:
    """List every stored finding."""
    from kfuzz.report import json_report, lists
    from kfuzz.report.drawing import shown_path

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    _must_exist(corpus, project.corpus.is_dir())
    entries = list(project.store().entries())
    stored = [entry for entry in entries if isinstance(entry, Stored)]
    problems = [entry for entry in entries if isinstance(entry, Problem)]
    with report_stream() as out:
        if as_json:
            json_report.write(json_report.corpus_list(entries), out)
            return ExitCode.OK
        for line in lists.corpus_lines(stored) if stored else []:
            print(line, file=out)
        if not stored:
            print(f"no finding in {shown_path(project.corpus)}", file=out)
        for problem in problems:
            typer.echo(f"kfuzz: skipped: {lists.problem_line(problem)}", err=True)
    return ExitCode.OK


@corpus_app.command()
def check(
    corpus: options.CorpusOption = None, format: options.FormatOption = "text"
) -> int:
    """Check that every stored finding can be read; exit 1 if one cannot."""
    from kfuzz.report import json_report, lists

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    _must_exist(corpus, project.corpus.is_dir())
    problems = project.store().check()
    whole = sum(isinstance(entry, Stored) for entry in project.store().entries())
    with report_stream() as out:
        if as_json:
            shown = [json_report.problem(problem) for problem in problems]
            json_report.write({"readable": whole, "problems": shown}, out)
        else:
            for problem in problems:
                print(lists.problem_line(problem), file=out)
            print(f"{whole} readable, {len(problems)} problems", file=out)
    return ExitCode.VIOLATION if problems else ExitCode.OK


def show(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="An id, its beginning, or a finding.json."),
    ],
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
) -> int:
    """Show everything about one finding."""
    from kfuzz.report import json_report, pages

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(corpus)
    stored = project.store().find(id)
    with report_stream() as out:
        if as_json:
            json_report.write(json_report.finding_document(stored), out)
            return ExitCode.OK
        page = pages.finding_page(stored.finding, stored.path, options=project.options)
        for line in page:
            print(line, file=out)
    return ExitCode.OK


def _must_exist(option: str | None, exists: bool) -> None:
    if option is not None and not exists:
        raise UsageError("no such folder", where=f"--corpus {option}")
