"""kfuzz observe: the kernels that a program launches, as a file of bindings."""

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli.settings import option
from kfuzz.cli.streams import ExitCode
from kfuzz.core.errors import UsageError
from kfuzz.features.observe.program import run_program
from kfuzz.report.files import require_writable

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
    folder = Path(tempfile.mkdtemp(prefix="kfuzz-observe-"))
    try:
        import torch

        words = [str(script), *(arguments or ())]
        interpreted = not torch.cuda.is_available()
        code = run_program(words, folder, [OBSERVING], interpreted=interpreted)
        if code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            typer.echo(f"kfuzz: {script} ended with {how}", err=True)
        return write_bindings(shlex.join(["kfuzz", "observe", *words]), folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_bindings(command: str, folder: Path, out: Path) -> ExitCode:
    """Write the bindings that a program left in a folder, and tell what they are."""
    from kfuzz.features.examining import write_or_raise
    from kfuzz.features.observe.watching import read
    from kfuzz.features.observe.writing import bindings, guess, is_bound

    callees = [c for c in read(folder) if c.calls or c.launches]
    if not callees:
        typer.echo(
            "kfuzz: it launched no Triton kernel and called no custom operator: "
            f"{out} was not written",
            err=True,
        )
        return ExitCode.NOTHING_TO_RUN
    found = [(callee, guess(callee)) for callee in callees]
    write_or_raise(out, bindings(found, command=command))
    for callee, made in found:
        said = "no operator agrees" if made is None else f"ops.{made.operator}"
        typer.echo(f"{callee.module}.{callee.name}: {said} ({callee.count} calls)")
    bound = sum(is_bound(callee, made) for callee, made in found)
    rest = len(found) - bound
    typer.echo(f"{out}: {bound} bound, {rest} for a person to name")
    if bound:
        typer.echo(f"next: kfuzz check {out}")
    return ExitCode.OK
