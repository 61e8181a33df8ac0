"""The command line: verbs wired together, errors and exit codes in one place."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from kfuzz import __version__
from kfuzz.cli import streams
from kfuzz.cli.check import check
from kfuzz.cli.corpus_verbs import contracts_app, corpus_app, report, show
from kfuzz.cli.doctor import doctor
from kfuzz.cli.project import config
from kfuzz.cli.replay import repair, replay, shrink
from kfuzz.cli.run import run
from kfuzz.core import features
from kfuzz.store import mirror

app = typer.Typer(
    name="kfuzz",
    help="Falsify the contracts of GPU kernels.",
    add_completion=True,
    rich_markup_mode=None,  # plain help: it is read in logs and searched
    pretty_exceptions_enable=False,
)
for verb in (run, check, report, replay, shrink, show, repair, config, doctor):
    app.command()(verb)
app.add_typer(corpus_app, name="corpus")
app.add_typer(contracts_app, name="contracts")
for name, found in features.verbs():
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        settings = getattr(found, "context_settings", None)
        app.command(name, context_settings=settings)(found)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"kfuzz {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Print tracebacks of internal errors."),
    ] = False,
) -> None:
    """Falsify the contracts of GPU kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises.

    Args:
        arguments: those after the program's name; the process's by default.
    """
    with streams.noting_interrupts() as interrupted:
        code = _obeyed(list(sys.argv[1:] if arguments is None else arguments))
    if code == streams.ExitCode.INTERRUPTED and interrupted.is_set():
        print("kfuzz: aborted", file=sys.stderr)
    return code


def _obeyed(words: list[str]) -> int:
    streams.open_standard_streams()
    # Wherever it stands: an error may come before options are parsed.
    verbose = bool({"-v", "--verbose"} & set(words))
    try:
        if not words:
            get_command(app).main(["--help"], prog_name="kfuzz", standalone_mode=False)
            return streams.ExitCode.USAGE
        code = get_command(app).main(words, prog_name="kfuzz", standalone_mode=False)
        sys.stdout.flush()
        mirror.finish()
        return streams.ExitCode(code or 0)
    except SystemExit as ended:
        if "_KFUZZ_COMPLETE" in os.environ:  # the shell has its completions
            return int(ended.code or 0)
        streams.discard_stdout()
        return streams.ExitCode.INTERRUPTED
    except (streams.ReaderGoneError, BrokenPipeError):
        # Whoever read the report has left (typer exits then); findings are saved.
        streams.discard_stdout()
        return streams.ExitCode.INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        return streams.ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError):  # of standard output, too
            streams.discard_stdout()
        return streams.report_error(error, verbose=verbose)
