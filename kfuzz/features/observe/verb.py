"""kfuzz observe: the kernels that a program launches, as a file of bindings."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli.settings import option
from kfuzz.cli.streams import ExitCode
from kfuzz.core.errors import UsageError
from kfuzz.core.features import with_home
from kfuzz.report.files import require_writable

# Not as a module of its own: what is pickled there is read here.
_PROGRAM: Final = "from kfuzz.features.observe.watching import run; run()"


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
        code = _run(script, arguments or [], folder)
        if code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            typer.echo(f"kfuzz: {script} ended with {how}", err=True)
        return _written(script, arguments or [], folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(script: Path, arguments: list[str], folder: Path) -> int:
    """Run the program; a signal is its own to obey."""
    environment = dict(os.environ)
    import torch

    if not torch.cuda.is_available():
        environment.setdefault("TRITON_INTERPRET", "1")
    words = [sys.executable, "-c", _PROGRAM, str(folder), str(script), *arguments]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(
            words, env=with_home(environment), check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ).returncode  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def _written(script: Path, arguments: list[str], folder: Path, out: Path) -> int:
    """Write the bindings, and tell what they are."""
    from kfuzz.features.examining import write_or_raise
    from kfuzz.features.observe.watching import read
    from kfuzz.features.observe.writing import bindings, guess, is_bound

    callees = [c for c in read(folder) if c.calls or c.launches]
    if not callees:
        typer.echo(
            f"kfuzz: {script} launched no Triton kernel and called no custom operator: "
            "nothing was written",
            err=True,
        )
        return ExitCode.NOTHING_TO_RUN
    found = [(callee, guess(callee)) for callee in callees]
    command = " ".join(["kfuzz observe", str(script), *arguments])
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
