"""kfuzz observe and sanitize: the kernels that a program launches, bound or checked."""

import ast
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.settings import FormatOption, option, shared
from kfuzz.cli.streams import ExitCode, code_of_search, print_report
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.event import Exited
from kfuzz.features.observe.faults import ending, run_program, scratch
from kfuzz.report.files import require_writable
from kfuzz.store.files import read_source
from kfuzz.targets.load import project_root

if TYPE_CHECKING:
    from kfuzz.features.observe.watching import Callee
    from kfuzz.features.observe.writing import Guess

OBSERVING: Final = "kfuzz.features.observe.watching"


def observe(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="The program, a Python file.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENT",
            help="The program's own; after -- if they look like options.",
        ),
    ] = None,
    out: Annotated[Path, option("--out", "File of bindings.", metavar="FILE")] = Path(
        "observed.py"
    ),
) -> int:
    """Run a program and write a file of bindings for the kernels that it launches.

    The program runs as ever. A function around its launches is bound to the operator
    whose bound its results keep; where none is found, a person is asked to name it.
    Without a GPU, Triton kernels run in Triton's interpreter.

    Exit codes: 0 written, 2 usage, or the program is not there, 3 internal error,
    4 no launch and no custom operator was seen. What the program itself ended with is
    printed.
    """
    if not script.is_file():
        raise UsageError("there is no such file", where=str(script))
    require_writable(out, where="--out")
    import torch

    with scratch("observe") as folder:
        words = [str(script), *(arguments or ())]
        interpreted = not torch.cuda.is_available()
        code = run_program(words, folder, [OBSERVING], interpreted=interpreted)
        if code:
            typer.echo(f"kfuzz: {script} {ending(code)}", err=True)
        from kfuzz.features.observe.watching import read

        said = shlex.join(["kfuzz", "observe", *words])
        seen = read(folder)
        if is_library(script) and script.resolve().parent == out.resolve().parent:
            # What imports it from there finds the program's own functions.
            own, program = "__main__", script.stem
            seen = [replace(c, module=program) if c.module == own else c for c in seen]
        return write_bindings(said, seen, {}, out)


def is_library(script: Path) -> bool:
    """Whether importing a program does not run it: it keeps that to `__main__`."""
    defining = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef

    def harmless(node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return "__name__" in ast.unparse(node.test)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr):
            return not any(isinstance(each, ast.Call) for each in ast.walk(node))
        return isinstance(node, defining)

    try:
        body = ast.parse(read_source(script)).body
    except (SyntaxError, ValueError, DecodeError):
        return False
    return script.stem.isidentifier() and all(map(harmless, body))


def write_bindings(
    command: str, callees: "Sequence[Callee]", judged: "Mapping[int, Guess]", out: Path
) -> ExitCode:
    """Write the bindings of what a program called, and tell what they are.

    Args:
        command: by which it was run.
        callees: what it called.
        judged: by number of these, the operator that some calls have agreed with.
        out: the file.
    """
    from kfuzz.features.examining import write_or_raise
    from kfuzz.features.observe.writing import bindings, guess

    if not callees:
        typer.echo(
            "kfuzz: it launched no Triton kernel and called no custom operator: "
            f"{out} was not written",
            err=True,
        )
        return ExitCode.NOTHING_TO_RUN
    found = [(c, judged.get(n) or guess(c)) for n, c in enumerate(callees)]
    text = bindings(found, command=command)
    write_or_raise(out, text)
    for callee, made in found:
        said = "no operator agrees" if made is None else f"ops.{made.operator}"
        typer.echo(f"{callee.module}.{callee.name}: {said} ({callee.count} calls)")
    bound = text.count("\n@kfuzz.kernel(")
    rest = len(found) - bound
    typer.echo(f"{out}: {bound} bound, {rest} for a person to name")
    if bound and any(callee.faults for callee in callees):
        typer.echo(f"next: kfuzz run {out}, which searches around what was found")
    elif bound:
        typer.echo(f"next: kfuzz check {out}")
    return ExitCode.OK


# kfuzz sanitize: its launches, interpreted and checked.

_CHECKING: Final = "kfuzz.features.observe.sanitizing"
# Of each function, in each process, the first so many calls.
_JUDGED_CALLS: Final = "64"
_GPUS: Final = ("slice", "h100", "a100", "mi300")


def sanitize(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROGRAM",
            help="The program, a Python file, and all that it is given.",
        ),
    ] = None,
    module: Annotated[
        str,
        option(("-m", "--module"), "Run this module instead: pytest.", metavar="NAME"),
    ] = "",
    gpu: Annotated[
        str,
        option(
            "--gpu",
            "What it finds; slice is a seventh of an H100.",
            settings.one_of(*_GPUS),
        ),
    ] = "slice",
    bindings: Annotated[
        Path | None,
        option(
            "--bindings",
            "Write a file of bindings for what was launched, as `kfuzz observe` does.",
            metavar="FILE",
        ),
    ] = None,
    values: Annotated[
        bool,
        option(
            "--values",
            "Hold results to the operator that a function is recognised to compute.",
        ),
    ] = False,
    select: Annotated[
        list[str] | None,
        option(
            "--select",
            "Report kernels with these names alone; globs. Repeatable.",
            metavar="GLOB",
        ),
    ] = None,
    suppress: Annotated[
        Path | None,
        option(
            "--suppress",
            "Faults that are known: a line of FILE is path.py:41 and the reason.",
            metavar="FILE",
        ),
    ] = None,
    strict: Annotated[
        bool, option("--strict", "Exit 1 where a launch could not be interpreted, too.")
    ] = False,
    max_time: Annotated[
        str | None, shared("max-time", "End the program after this long.")
    ] = None,
    report: Annotated[list[str] | None, shared("report")] = None,
    format: FormatOption = "text",
) -> int:
    """Run any program without a GPU, and check what its Triton kernels do.

    The program finds a GPU. Each launch is interpreted: loads and stores outside the
    tensors that it is given, loads of memory that nothing wrote, and races between
    programs are reported by line. What the program prints and returns stays its own.

    Exit codes: 0 no fault, 1 a fault that is not suppressed, or the program failed,
    2 usage, or the program is not there, 3 internal error, 4 nothing was launched, 130
    interrupted. What the program itself ended with is printed.
    """
    from kfuzz.features.observe import faults as found
    from kfuzz.features.observe import watching
    from kfuzz.report.files import ReportFiles

    given = list(words or ())
    if not module and not given:
        raise UsageError("no program", fix="name a Python file, or -m and a module")
    if not module and not Path(given[0]).is_file():
        raise UsageError("there is no such file", where=given[0])
    if bindings is not None:
        require_writable(bindings, where="--bindings")
    known = {} if suppress is None else _suppressed(suppress)
    reports: Any = report or ()  # read by the option's kind
    files = ReportFiles(reports, root=project_root())
    command = [*(("-m", module) if module else ()), *given]
    said = shlex.join(["kfuzz", "sanitize", *command])
    began = time.monotonic()
    with scratch("sanitize") as folder:
        ended = run_program(
            command,
            folder,
            [_CHECKING, OBSERVING] if bindings or values else [_CHECKING],
            interpreted=True,
            seconds=None if max_time is None else settings.duration(max_time),
            environment={found.GPU: gpu}
            | ({watching.KEPT: _JUDGED_CALLS} if values else {}),
        )
        seen, processes = found.read(folder)
        callees = watching.read(folder)
    operators = {}
    for number, callee in enumerate(callees if values else ()):
        from kfuzz.features.observe.writing import judged

        if (made := judged(callee)) is not None:
            operators[number] = made[0]
            for fault in made[1]:
                seen.add(fault)
                callee.faults[fault.words] += 1
    if bindings is not None:
        write_bindings(said, callees, operators, bindings)
    interrupted = ended in (-signal.SIGINT, ExitCode.INTERRUPTED)
    faults = [
        f
        for f in seen.faults.values()
        if not select or any(fnmatchcase(f.kernel.name, glob) for glob in select)
    ]
    faults.sort(key=lambda f: (f.kernel.file, f.kernel.line, f.access.line))
    code = code_of_search(
        interrupted=interrupted,
        violated=any(f.access.line not in known for f in faults)
        or bool(ended or (strict and seen.lacking)),
        failed=False,
        ran=bool(seen.launches or seen.lacking),
    )
    for event in found.events(
        seen, faults, known, time.monotonic() - began, interrupted
    ):
        files.feed(event)
    files.finish(Exited(code, "", said))
    files.require_written()
    print_report(
        format,
        lambda: found.document(seen, faults, known, ended),
        lambda: found.lines(seen, faults, known, ended, processes),
    )
    return code


sanitize.context_settings = {  # type: ignore[attr-defined]
    "allow_interspersed_args": False,  # what follows the program is its own
    "ignore_unknown_options": True,
}


def _suppressed(file: Path) -> dict[str, str]:
    """Return why faults are known, by line.

    Raises:
        DecodeError: if the file cannot be read.
        UsageError: if a line of it has no reason.
    """
    found = {}
    for number, line in enumerate(read_source(file).splitlines(), 1):
        place, _, reason = line.strip().partition(" ")
        if not place or place.startswith("#"):
            continue
        if not place.rpartition(":")[2].isdigit() or not reason.strip():
            raise UsageError(
                f"{line.strip()!r:.60} suppresses nothing",
                where=f"{file}:{number}",
                fix="write path.py:41 and the reason",
            )
        found[place] = reason.strip()
    return found
