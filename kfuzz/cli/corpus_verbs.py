"""kfuzz corpus … and kfuzz show: the store, read and kept up without torch."""

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.project import Project, folder_of, open_project
from kfuzz.cli.settings import (
    CorpusOption,
    FormatOption,
    checking,
    option,
    reports,
    targets_argument,
)
from kfuzz.cli.streams import ExitCode, note, print_report, stopping
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import NothingToRunError, UsageError, suggestion
from kfuzz.core.event import Event, Exited, FindingSaved, Notice
from kfuzz.core.verdict import Feature, State
from kfuzz.report.kinds import NAMES
from kfuzz.report.text import MAX_LINE_CHARACTERS, read_events
from kfuzz.store.corpus import Corpus, Problem, Stored
from kfuzz.store.maintenance import Deed, Did

if TYPE_CHECKING:
    from kfuzz.report.tables import Shown


OLDER_THAN: Final = "30d"
_MARK: Final = settings.one_of("known", "fixed", "new")

corpus_app = typer.Typer(
    help="List, check, mark, merge and prune stored findings.",
    rich_markup_mode=None,
    add_completion=False,
)


@corpus_app.command("list")
def list_(corpus: CorpusOption = None, format: FormatOption = "text") -> int:
    """List every stored finding."""
    from kfuzz.report import json_report as corpus_lists
    from kfuzz.report.text import shown_path

    project = open_project(corpus, existing=True)
    entries = list(project.store().entries())
    none = [f"no finding in {shown_path(project.corpus)}"]
    print_report(
        format,
        lambda: corpus_lists.corpus_document(entries),
        lambda: corpus_lists.corpus_lines(entries) or none,
    )
    for entry in () if format == "json" else entries:
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
    from kfuzz.report import json_report as corpus_lists
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
    """Mark findings as known, fixed or new.

    known: it is reported when it is seen again, or passes, and fails no run.
    fixed: if it fails again it has regressed, and fails. new: neither any more.
    """
    from kfuzz.store import maintenance as upkeep

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
    _print_deeds(deeds, format)
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
    """Merge findings of other corpora, such as another machine's.

    Of one bucket the smaller minimum stays. Histories are joined, and the state is
    what they lead to: the later mark holds, and what failed after it was fixed has
    regressed. Exit 1 if an entry could not be merged.
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
    _print_deeds(deeds, format)
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
    """Remove findings that are over.

    Those fixed long since, those that never reproduced, and of several in one bucket
    all but one, which takes over their history.
    """
    from kfuzz.store import maintenance as upkeep

    seconds = settings.age(older_than)
    project = open_project(corpus, existing=True)
    deeds = upkeep.prune(project.store(), older_than=seconds, apply=yes)
    _print_deeds(deeds, format, done=yes)
    return ExitCode.OK


def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An id, its beginning, or a finding.json.",
        ),
    ],
    corpus: CorpusOption = None,
    format: FormatOption = "text",
    locate: Annotated[
        bool,
        option(
            "--locate",
            "First look for the line of source that it comes from, for up to 3 "
            "minutes, and keep it; see `kfuzz run --locate`.",
        ),
    ] = False,
) -> int:
    """Show everything about one finding, and what is proved of its kernel.

    What its output holds around the worst element, and how far the last run's results
    of the kernel lay from the tolerance, is drawn in letters, without colour.
    """
    from kfuzz.report import json_report
    from kfuzz.report.finding_view import finding_page, view
    from kfuzz.report.promises import proof_lines
    from kfuzz.report.tables import Shown, bar_lines
    from kfuzz.report.text import Section, section_lines
    from kfuzz.store.files import kept_proof, kept_runs

    project = open_project(corpus)
    stored = project.store().find(id)
    if locate:
        from kfuzz.engine.config import ReplayConfig
        from kfuzz.engine.search.found import locate_stored

        config = ReplayConfig(project.root, project.corpus, trusted=project.modules)
        with stopping() as stop:
            stored, why = locate_stored(stored, config, stopped=stop.is_set)
        if why:
            note(f"no line: {why}")
    found = stored.finding
    shown = Shown(found.target.node_id, found, str(stored.path))
    proof = kept_proof(project.corpus, found.target.node_id)
    proof = proof and proof.beside([found])
    proved = [] if proof is None else ["", "proof", *proof_lines(proof, premises=True)]
    seen = [
        run[found.target.node_id]
        for _, run in kept_runs(project.corpus)
        if found.target.node_id in run
    ]
    title = "error against tolerance, worst of each class in the last run"
    bars = section_lines([Section(title, bar_lines(seen[-1]))]) if seen else []
    print_report(
        format,
        lambda: (
            json_report.finding_document(stored)
            | ({"proof": json_report.proof_document(proof)} if proof else {})
        ),
        lambda: [*finding_page(view(shown, project.options)), *bars, *proved],
    )
    return ExitCode.OK


def _print_deeds(deeds: Sequence[Deed], form: str, *, done: bool = True) -> None:
    from kfuzz.report import json_report as corpus_lists

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
    chosen = [settings.choose(name, valid, "--features") for name in names]
    return [Feature(name) for name in dict.fromkeys(chosen)]


# kfuzz contracts list|operators|show: what kernels are held to.

contracts_app = typer.Typer(
    help="Look at the contracts.", rich_markup_mode=None, add_completion=False
)


@contracts_app.command("list")
def list_contracts(
    glob: Annotated[
        str,
        typer.Argument(
            metavar="[GLOB]",
            help='Name the contracts that match: "C-PRC-*", "*/softmax".',
            show_default=False,
        ),
    ] = "",
    format: FormatOption = "text",
) -> int:
    """List the contract classes, each with the number of operators that it binds."""
    from kfuzz.contracts.suite import every_contract
    from kfuzz.report.json_report import contract_document
    from kfuzz.report.promises import class_lines, promise
    from kfuzz.report.text import table

    every = every_contract()
    chosen = [c for c in every if not glob or _matches(c.identifier, glob)]
    if not chosen:
        fix = "`kfuzz contracts list` names the classes, `operators` the operators"
        raise UsageError(f"no contract matches {glob!r:.60}", fix=fix)

    print_report(
        format,
        lambda: {"contracts": [contract_document(c) for c in chosen]},
        lambda: (
            table([(c.identifier, promise(c)) for c in chosen])
            if glob
            else class_lines(every)
        ),
    )
    return ExitCode.OK


@contracts_app.command()
def operators(
    targets: Annotated[
        list[str] | None,
        targets_argument(
            "List the operators of these kernels instead: your own too. The files are "
            "imported."
        ),
    ] = None,
    format: FormatOption = "text",
) -> int:
    """List the operators, each with its call and the number of its contracts."""
    from kfuzz.contracts.operators import OPERATORS
    from kfuzz.report.promises import operator_lines

    return _print_operators(
        format,
        lambda: _operators_of(targets) if targets else list(OPERATORS.values()),
        operator_lines,
    )


def _print_operators(
    format: str,
    operators: Callable[[], Sequence[Operator]],
    lines: Callable[..., list[str]],
) -> ExitCode:
    from kfuzz.report.promises import operator_document

    print_report(
        format,
        lambda: {"operators": list(map(operator_document, operators()))},
        lambda: lines(operators()),
    )
    return ExitCode.OK


@contracts_app.command("show")
def show_contracts(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help='A contract ("C-PRC-01/matmul"), a class ("C-PRC-01"), an operator '
            '("matmul"), or a kernel with an operator of your own '
            '("my_kernels.py::rope").',
        ),
    ],
    format: FormatOption = "text",
) -> int:
    """Show the eight parts of one contract or class, or what an operator promises."""
    from kfuzz.contracts.classes import CLASSES
    from kfuzz.contracts.operators import OPERATORS
    from kfuzz.contracts.suite import find_contract
    from kfuzz.report import promises
    from kfuzz.report.json_report import contract_page

    is_target = ":" in id or id.endswith((".py", "/"))
    if id in CLASSES or ("/" in id and not is_target):
        found = promises.class_contract(id) if id in CLASSES else find_contract(id)
        print_report(
            format,
            lambda: {"contract": contract_page(found)},
            lambda: promises.contract_lines(found),
        )
        return ExitCode.OK
    if id not in OPERATORS and not is_target:
        names = [*CLASSES, *OPERATORS]
        raise UsageError(
            f"no contract class or operator {id!r:.60}",
            fix=suggestion(id, names).partition("valid:")[0]
            + "`kfuzz contracts list` and `kfuzz contracts operators` print all",
        )
    return _print_operators(
        format,
        lambda: [OPERATORS[id]] if id in OPERATORS else _operators_of([id]),
        promises.operator_pages,
    )


def _matches(identifier: str, glob: str) -> bool:
    name, _, operator = identifier.partition("/")
    return any(fnmatch.fnmatchcase(text, glob) for text in (identifier, name, operator))


def _operators_of(targets: Sequence[str]) -> list[Operator]:
    """Return the operators of kernels, each once; their files are imported.

    Raises:
        KfuzzError: if a target cannot be loaded.
    """
    from kfuzz.targets.load import load_all, project_root

    found = load_all(tuple(targets), root=project_root())
    return list({k.kernel.operator.name: k.kernel.operator for k in found}.values())


# kfuzz report: make reports afterwards, of kept events and of what a corpus holds.


def report(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar=f"{'|'.join(NAMES)}=FILE [ID]",
            help="Several by spaces or commas. Ids of findings after them: of these "
            "alone. `issue` is of one finding.",
        ),
    ],
    events: Annotated[
        list[str] | None,
        option(
            "--events",
            "What `kfuzz run --report jsonl=FILE` wrote; repeatable. The corpus "
            "is then read only if --corpus names it.",
            metavar="FILE",
        ),
    ] = None,
    corpus: CorpusOption = None,
) -> int:
    """Make reports of stored findings, of events that a run kept, or of both.

    What the corpus has of a finding counts as newer than what the events have.
    """
    from kfuzz.report.files import ReportFiles

    asks = [i == 0 or "=" in word or word in NAMES for i, word in enumerate(wanted)]
    words = [word for word, ask in zip(wanted, asks, strict=True) if ask]
    ids = [word for word, ask in zip(wanted, asks, strict=True) if not ask]
    chosen = reports(words, "kfuzz report")
    project = open_project(corpus, existing=True)
    _require_files(events or [], [str(r.path) for r in chosen])
    if not events and not os.path.isdir(project.corpus):
        raise NothingToRunError(
            "no finding is stored here",
            where=str(project.corpus),
            fix="--corpus names another folder, --events what a run kept",
        )
    recorded = [event for name in events or [] for event in _kept(name)]
    with_corpus = corpus is not None or not events
    if with_corpus:
        recorded += _stored(project)
    if ids:
        recorded = _only(recorded, ids)
    named = [shown.finding.id for shown in _findings(recorded)]
    files = ReportFiles(
        chosen, root=project.root, options=project.options, findings=named,
        corpus=project.corpus if with_corpus and not ids else None,
    )  # fmt: skip
    exited = Exited()
    for event in recorded:
        if isinstance(event, Exited):
            exited = event
        else:
            files.feed(event)
    files.finish(exited)
    files.require_written()
    return ExitCode.OK


def _findings(recorded: Iterable[Event]) -> "list[Shown]":
    """Return all findings of some events."""
    from kfuzz.report.tables import Gathered

    run = Gathered()
    for event in recorded:
        run.feed(event)
    return run.findings


def _only(recorded: Iterable[Event], ids: Sequence[str]) -> list[Event]:
    """Return events of some findings alone.

    Args:
        recorded: all there are.
        ids: each an id, one that a finding had before, or the beginning of just one.

    Raises:
        UsageError: if one is the id of no finding, or the beginning of several.
    """
    every = _findings(recorded)
    found: dict[str, Event] = {}
    for id in ids:
        fit = [s for s in every if id in (s.finding.id, *s.finding.former)]
        fit = fit or [s for s in every if s.finding.id.startswith(id)]
        if len(fit) != 1:
            named = [s.finding.id for s in fit or every]
            what = f"{id!r:.200} is the id of {len(fit)} findings"
            raise UsageError(what, where="kfuzz report", fix=suggestion(id, named))
        one = fit[0]
        made = FindingSaved(one.kernel, one.finding, one.path, one.is_new, "done")
        found[one.finding.id] = made
    return list(found.values())


def _kept(name: str) -> list[Event]:
    """Return what a run kept, malformed text included as such.

    Raises:
        DecodeError: if it is malformed.
        NothingToRunError: if it kept nothing.
    """
    with open(name, encoding="utf-8", errors="surrogateescape") as lines:
        pieces = iter(lambda: lines.readline(MAX_LINE_CHARACTERS + 1), "")
        recorded = list(read_events(pieces, where=name))
    if not recorded:  # a page without findings would pass for a run without
        raise NothingToRunError("no event is kept here", where=f"--events {name}")
    return recorded


def _stored(project: Project) -> Iterator[Event]:
    """Yield what a corpus holds as events."""
    for entry in project.store().entries():
        if isinstance(entry, Problem):
            yield Notice("", f"skipped: {entry.what}")
        else:
            node, path = entry.finding.target.node_id, str(entry.path)
            yield FindingSaved(node, entry.finding, path, False, "done")


def _require_files(events: list[str], written: list[str]) -> None:
    """Check that what is read is there, and is not what will be written.

    Raises:
        UsageError: if not.
    """
    places = {os.path.realpath(path) for path in written}
    for name in events:
        if not os.path.isfile(name):
            raise UsageError("no such file", where=f"--events {name}")
        if os.path.realpath(name) in places:
            raise UsageError(
                "is read and would be overwritten",
                where=f"--events {name}",
                fix="name another file for the report",
            )
