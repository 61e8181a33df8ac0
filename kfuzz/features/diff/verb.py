"""kfuzz diff and kfuzz bisect: where two implementations, or revisions, part."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    CorpusOption,
    DeviceOption,
    EnvironmentOption,
    FormatOption,
    option,
    shared,
)
from kfuzz.cli.streams import ExitCode, print_report, stopping
from kfuzz.core.codec import encode
from kfuzz.core.errors import NothingToRunError, UsageError
from kfuzz.core.features import with_home
from kfuzz.report.finding_view import line_lines
from kfuzz.report.text import counted, draw_case

if TYPE_CHECKING:
    from kfuzz.features.diff.search import Difference, Differing

DEFAULT_CASES: Final = 200


def diff(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="path.py::name, module:name, git:REV:path.py::name; "
            "PACKAGE==VERSION:: before one of the first two. The name of a function, "
            "or of a kernel that the file binds.",
            show_default=False,
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", help="Likewise.", show_default=False),
    ],
    bits: Annotated[bool, option("--bits", "Any other bit is a difference.")] = False,
    operator: Annotated[
        str,
        option(
            "--operator",
            "What both compute, such as softmax. Default: as OLD is bound, or by its "
            "name where OLD keeps to that operator's bound.",
            metavar="NAME",
        ),
    ] = "",
    environment: EnvironmentOption = None,
    max_cases: Annotated[
        int, shared("max-cases", f"{DEFAULT_CASES} by default.")
    ] = DEFAULT_CASES,
    max_time: Annotated[str, shared("max-time", "For the search.")] = "5m",
    seed: Annotated[int, shared("seed", "Of the drawn cases.", "N")] = 0,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
) -> int:
    """Search for the input on which two implementations of one function differ.

    Cases are drawn from what OLD takes, and each side runs in a process of its own.
    They differ where one alone raises, where shapes or data types do, and in a value
    where one lies outside the bound of their operator and the other does not. Where
    no operator is known, or both are outside, they differ by more than 4 sqrt(n) times
    what moves the results as each input is rounded to a neighbour, n being the longest
    sum that the shapes allow; OLD in plain torch has to be left by its own bound,
    besides. So two forms of which one cancels differ. Memory and races are not
    compared: `kfuzz run` looks at them.

    Exit codes: 0 equal, in bits or within bounds, 1 they differ, 2 usage, 3 internal
    error, 4 no case could be compared, 5 device missing, 130 interrupted.
    """
    project = open_project(None)
    end = time.monotonic() + settings.duration(max_time)

    from kfuzz.engine.workers.runner import runner_of
    from kfuzz.engine.workers.zygotes import Backend
    from kfuzz.features.diff.search import Differing
    from kfuzz.features.diff.sides import OPEN, REFERENCE, write_side
    from kfuzz.targets.load import Source, load

    def compared(operator: str) -> "tuple[str, Differing, Difference | None]":
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="kfuzz-")))
        files = [
            write_side(word, folder / side, environment or (), operator)
            for side, word in (("old", old), ("new", new))
        ]
        backend = held.enter_context(closing(Backend(device)))
        (loaded,) = load(Source(files[0]), root=project.root)
        rule = sys.modules[loaded.kernel.module].RULE
        # Of the new one nothing is imported here: its modules may bear equal names.
        sides = [
            runner_of(
                replace(loaded, source=Source(file)), backend, root=project.root,
                expired=stop.is_set, quiet=lambda: True,
            )
            for file in files
        ]  # fmt: skip
        first, second = (held.enter_context(closing(side)) for side in sides)
        made = Differing(first, second, rule, bits=bits)
        found = made.search(
            max_cases, seed, lambda: stop.is_set() or time.monotonic() >= end
        )
        return rule, made, found

    with ExitStack() as held, stopping() as stop:
        rule, made, found = compared(operator)
        # It may not run in float64; no reference bounds it then.
        if rule == REFERENCE and {*made.counts} == {"uncompared"} and not found:
            rule, made, found = compared(OPEN)
        if stop.is_set():
            return ExitCode.INTERRUPTED
    why = next((why for why, _ in made.whys.most_common(1)), "")
    if found is None and not made.counts["equal"] + made.counts["within"]:
        usual = "time was up" if made.cut else "no case was drawn"
        text = f"no case could be compared: {why or usual}"
        fix = "give --operator, or bind OLD with what it takes, as dtypes='float16'"
        raise NothingToRunError(text, where=f"{old}, {new}", fix=fix if why else "")
    said = {"old": old, "new": new, "rule": rule, "counts": made.counts}
    print_report(
        format,
        lambda: {**said, "difference": encode(found)},
        lambda: _lines(old, new, made.counts, found, why, cut=made.cut),
    )
    return ExitCode.OK if found is None else ExitCode.VIOLATION


def _lines(
    old: str, new: str, counts: Mapping[str, int], found: "Difference | None", why: str,
    *, cut: bool,
) -> Iterator[str]:  # fmt: skip
    equal, within, left = (counts[n] for n in ("equal", "within", "uncompared"))
    rest = f"; {counted(left, 'other')} not compared" if left else ""
    rest += f": {why}" if left and why else ""
    rest += "; time was up: a longer --max-time compares more" if cut else ""
    if found is None:
        way = (
            f"within bounds over {{}}, in bits over {equal}"
            if within
            else "in bits over {}"
        )
        yield f"equal {way.format(counted(equal + within, 'case'))}{rest}"
        return
    yield f"differ: {found.kind}{f' in {found.output}' if found.output else ''}"
    rows = [("allowed", found.allowed)] if found.allowed else []
    for side, word, value in (("new", new, found.new), ("old", old, found.old)):
        out = ", outside" if found.outside == side else ""
        rows.insert(0, (side, f"{value}{out}  ({word})"))
    for label, lines in (
        ("input", draw_case(found.case)), ("line", line_lines(found.line)),
    ):  # fmt: skip
        rows += [("" if n else label, line) for n, line in enumerate(lines)]
    sizes = f"{found.first.elements:,} to {counted(found.case.elements, 'element')}"
    before = f"{equal} cases equal in bits and {within} within bounds before"
    rows.append(("status", f"shrunk from {sizes}; {before}{rest}"))
    yield from (f"  {label:<9} {text}" for label, text in rows)


def bisect(
    id: Annotated[str, typer.Argument(metavar="ID", help="The finding.")],
    good: Annotated[str, option("--good", "Where it does not fail.", metavar="REV")],
    bad: Annotated[str, option("--bad", "Where it fails.", metavar="REV")] = "HEAD",
    corpus: CorpusOption = None,
    trust: Annotated[bool, option("--trust", "As for `kfuzz replay`.")] = False,
) -> int:
    """Find the revision from which a finding fails, by git bisect.

    Revisions are checked out in a worktree of their own, and `kfuzz replay` runs the
    finding there; those where it cannot be judged are skipped.

    Exit codes: 0 found, 2 usage, or it fails at --good or not at --bad, 4 the revisions
    left cannot be judged.
    """
    project = open_project(corpus)
    from kfuzz.features.diff.sides import git

    stored = project.store().find(id)
    words = [sys.executable, "-P", "-m", "kfuzz", "replay", str(stored.path.resolve())]
    words += ["--fail-on", "any", "--corpus", str(project.corpus.resolve())]
    words += ["--trust"] * trust
    top = Path(git(project.root, "rev-parse", "--show-toplevel"))
    good, bad = (
        git(top, "rev-parse", "--verify", f"{r}^{{commit}}") for r in (good, bad)
    )
    ask = partial(subprocess.run, env=with_home(os.environ), stdout=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="kfuzz-") as folder:
        tree = Path(folder) / "tree"
        git(top, "worktree", "add", "--detach", str(tree), bad)
        try:
            where = tree / project.root.resolve().relative_to(top.resolve())
            for revision, wanted in ((good, ExitCode.OK), (bad, ExitCode.VIOLATION)):
                git(tree, "checkout", "--detach", revision)
                if (code := ask(words, cwd=where).returncode) != wanted:
                    what = f"replay exits with {code} there, not {int(wanted)}"
                    raise UsageError(what, where=revision)
            git(tree, "bisect", "start", bad, good)
            ask(["git", "bisect", "run", *words], cwd=where)
            if "# first bad commit" not in git(tree, "bisect", "log"):
                raise NothingToRunError("the revisions left cannot be judged", where=id)
            print(git(tree, "show", "-s", "--format=%H %as %an%n  %s", "bisect/bad"))
        finally:
            git(top, "worktree", "remove", "--force", str(tree))
    return ExitCode.OK
