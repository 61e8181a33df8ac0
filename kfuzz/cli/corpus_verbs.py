"""kfuzz corpus … and kfuzz show: the store, read and kept up without torch."""

import os
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from kfuzz.cli import completion, values
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import folder_of, open_project
from kfuzz.cli.settings import CorpusOption, FormatOption, checking, option
from kfuzz.cli.standard_streams import print_report
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.verdict import Feature, State
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.maintenance import Deed, Did

OLDER_THAN: Final = "30d"
_MARK: Final = values.one_of("known", "fixed", "new")

corpus_app = typer.Typer(
    help="Look at stored findings, and keep them up.",
    rich_markup_mode=None,
    add_completion=False,
)


@corpus_app.command("list")
def list_(corpus: CorpusOption = None, format: FormatOption = "text") -> int:
    """List every stored finding."""
    from kfuzz.report import corpus_lists
    from kfuzz.report.text import shown_path

    project = open_project(corpus, existing=True)
    entries = list(project.store().summaries())
    none = [f"no finding in {shown_path(project.corpus)}"]
    print_report(
        format,
        lambda: corpus_lists.corpus_document(entries),
        lambda: corpus_lists.corpus_lines(entries) or none,
    )
    for _, entry in () if format == "json" else entries:
        if isinstance(entry, Problem):
            text = f"kfuzz: skipped: {corpus_lists.problem_line(entry)}"
            typer.echo(text, err=True)
    return ExitCode.OK


@corpus_app.command()
def check(
    corpus: CorpusOption = None,
    format: FormatOption = "text",
    repair: Annotated[
        bool,
        option(
            "--repair",
            "First finish or clear away what killed writers left, and give "
            "misplaced entries their place; what cannot be read stays.",
        ),
    ] = False,
) -> int:
    """Check that every stored finding can be read; exit 1 if one cannot."""
    from kfuzz.report import corpus_lists
    from kfuzz.report.text import one_line

    project = open_project(corpus, existing=True)
    done = project.store().repair() if repair else []
    problems = project.store().check()
    whole = sum(isinstance(entry, Stored) for entry in project.store().entries())
    total = f"{whole} readable, {len(problems)} problem{'s' * (len(problems) != 1)}"
    print_report(
        format,
        lambda: {
            **({"repaired": done} if repair else {}),
            "readable": whole,
            "problems": [corpus_lists.problem_document(p) for p in problems],
        },
        lambda: [
            *(f"repaired: {one_line(line)}" for line in done),
            *(["repaired: nothing needed it"] if repair and not done else []),
            *map(corpus_lists.problem_line, problems),
            total,
        ],
    )
    return ExitCode.VIOLATION if problems else ExitCode.OK


@corpus_app.command()
def mark(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID",
            help="Ids, beginnings of them, finding.json.",
            autocompletion=completion.ids,
        ),
    ],
    state: Annotated[
        str,
        typer.Argument(
            metavar=_MARK.metavar,
            help="The state it is in now.",
            callback=checking(_MARK, "the state"),
        ),
    ],
    reason: Annotated[
        str,
        option(
            "--reason",
            "Why, for the history; a known finding needs one.",
            metavar="TEXT",
        ),
    ] = "",
    link: Annotated[
        str,
        option(
            "--link",
            "Where there is more, such as an issue: http or https.",
            metavar="URL",
        ),
    ] = "",
    features: Annotated[
        list[str] | None,
        option(
            "--features",
            "Known only where all these are needed; without any, wherever kernel, "
            "contract, kind and output are the same.",
            metavar="tail,nan",
        ),
    ] = None,
    corpus: CorpusOption = None,
    format: FormatOption = "text",
) -> int:
    """Say what people know of findings.

    known: it is reported when it is seen again, or passes, and fails no run.
    fixed: if it fails again it has regressed, and fails. new: neither any more.
    """
    from kfuzz.store import maintenance as upkeep

    for name, text in (("--reason", reason), ("--link", link)):
        if not text.isprintable():
            raise UsageError("holds control characters", where=name)
    if link and not link.startswith(("http://", "https://")):
        raise UsageError(f"{link!r:.60} is no http or https address", where="--link")
    store = open_project(corpus).store()
    entries = [store.find(id) for id in dict.fromkeys(ids)]
    deeds = upkeep.mark(
        store,
        entries,
        State(state),
        reason=reason.strip(),
        link=link,
        features=_features(features or ()),
    )
    _tell(deeds, format)
    return ExitCode.OK


@corpus_app.command()
def merge(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="DIR|URL", help="Other corpora; they stay as they are."),
    ],
    corpus: CorpusOption = None,
    format: FormatOption = "text",
) -> int:
    """Take in findings from other corpora, such as another machine's.

    Of one bucket the smaller minimum stays. Histories are joined, and the state is
    what they lead to: the later mark holds, and what failed after it was fixed has
    regressed. Exit 1 if an entry could not be taken in.
    """
    from kfuzz.store import maintenance as upkeep

    project = open_project(corpus)
    own = project.corpus
    others = [folder_of(name) for name in folders]
    for name, other in zip(folders, others, strict=True):
        if os.path.isdir(own) and own.samefile(other):
            raise UsageError("is the corpus itself", where=name)
    store, deeds = project.store(), list[Deed]()
    for other in others:
        deeds += upkeep.merge(store, Corpus(other))
    _tell(deeds, format)
    skipped = any(deed.did is Did.SKIPPED for deed in deeds)
    return ExitCode.VIOLATION if skipped else ExitCode.OK


@corpus_app.command()
def prune(
    older_than: Annotated[
        str,
        option(
            "--older-than", "Since when fixed ones are: 12h, 30d, 8w.", metavar="AGE"
        ),
    ] = OLDER_THAN,
    yes: Annotated[
        bool,
        option("--yes/--dry-run", "Do it; otherwise only print what would be removed."),
    ] = False,
    corpus: CorpusOption = None,
    format: FormatOption = "text",
) -> int:
    """Drop findings that are over.

    Those fixed long since, those that never reproduced, and of several in one bucket
    all but one, which takes over their history.
    """
    from kfuzz.store import maintenance as upkeep

    seconds = values.age(older_than)
    project = open_project(corpus, existing=True)
    deeds = upkeep.prune(project.store(), older_than=seconds, apply=yes)
    _tell(deeds, format, done=yes)
    return ExitCode.OK


def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An id, its beginning, or a finding.json.",
            autocompletion=completion.ids,
        ),
    ],
    corpus: CorpusOption = None,
    format: FormatOption = "text",
) -> int:
    """Show everything about one finding, and what is proved of its kernel."""
    from kfuzz.report import json_report
    from kfuzz.report.finding_view import finding_page, view
    from kfuzz.report.gathered import Shown
    from kfuzz.report.proofs import proof_lines
    from kfuzz.store.proofs import kept_proof

    project = open_project(corpus)
    stored = project.store().find(id)
    found = stored.finding
    shown = Shown(found.target.node_id, found, str(stored.path))
    proof = kept_proof(project.corpus, found.target.node_id)
    proved = [] if proof is None else ["", "proof", *proof_lines(proof, premises=True)]
    print_report(
        format,
        lambda: (
            json_report.finding_document(stored)
            | ({"proof": json_report.proof_document(proof)} if proof else {})
        ),
        lambda: [*finding_page(view(shown, project.options)), *proved],
    )
    return ExitCode.OK


def _tell(deeds: Sequence[Deed], form: str, *, done: bool = True) -> None:
    from kfuzz.report import corpus_lists

    print_report(
        form,
        lambda: corpus_lists.deeds_document(deeds, done=done),
        lambda: [
            *(corpus_lists.deed_line(deed, done=done) for deed in deeds),
            corpus_lists.deeds_line(deeds),
            *(["nothing was done: --yes does it"] if deeds and not done else []),
        ],
    )


def _features(texts: Sequence[str]) -> list[Feature]:
    names = [name.strip() for text in texts for name in text.split(",")]
    valid = [str(feature) for feature in Feature]
    for name in names:
        if name not in valid:
            fix = suggestion(name, valid)
            raise UsageError(f"{name!r:.40} is no feature", where="--features", fix=fix)
    return [Feature(name) for name in dict.fromkeys(names)]
