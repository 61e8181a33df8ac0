"""The command line: verbs wired together, errors and exit codes in one place."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from kfuzz import __version__
from kfuzz.check.verb import check
from kfuzz.cli.completion import VARIABLE
from kfuzz.cli.config import config
from kfuzz.cli.contract_verbs import contracts_app
from kfuzz.cli.corpus_verbs import corpus_app, show
from kfuzz.cli.exit_codes import ExitCode, report_error
from kfuzz.cli.prove import prove
from kfuzz.cli.replay import replay, shrink
from kfuzz.cli.report import report
from kfuzz.cli.run import run
from kfuzz.cli.standard_streams import (
    OutputError,
    ReaderGoneError,
    discard_stdout,
    noting_interrupts,
    open_standard_streams,
)
from kfuzz.cli.wiring import Wiring
from kfuzz.doctor.verb import doctor
from kfuzz.fleet.elsewhere import search_on
from kfuzz.grade.calibrate_verb import calibrate
from kfuzz.grade.certificate_verb import certificate_app
from kfuzz.grade.verb import grade
from kfuzz.judge import opener
from kfuzz.judge.verb import judge
from kfuzz.monitor.verb import monitor_report
from kfuzz.observe.verb import observe
from kfuzz.probe.verb import probe
from kfuzz.record.verb import compare, record
from kfuzz.store import mirror

app = typer.Typer(
    name="kfuzz",
    help="Falsify the contracts of GPU kernels.",
    add_completion=True,
    rich_markup_mode=None,  # plain help: it is read in logs and searched
    pretty_exceptions_enable=False,
)
for verb in (
    run,
    check,
    report,
    replay,
    shrink,
    show,
    calibrate,
    grade,
    judge,
    probe,
    prove,
    record,
    compare,
    observe,
    config,
    doctor,
):
    app.command()(verb)
app.command("monitor-report")(monitor_report)
app.add_typer(corpus_app, name="corpus")
app.add_typer(contracts_app, name="contracts")
app.add_typer(certificate_app, name="certificate")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"kfuzz {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
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
    context.obj = Wiring(opener, search_on)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises.

    Args:
        arguments: those after the program's name; the process's by default.
    """
    with noting_interrupts() as interrupted:
        code = _obeyed(list(sys.argv[1:] if arguments is None else arguments))
    if code == ExitCode.INTERRUPTED and interrupted.is_set():
        print("kfuzz: aborted", file=sys.stderr)
    return code


def _obeyed(words: list[str]) -> int:
    open_standard_streams()
    # Wherever it stands: an error may come before options are parsed.
    verbose = bool({"-v", "--verbose"} & set(words))
    try:
        if not words:
            get_command(app).main(["--help"], prog_name="kfuzz", standalone_mode=False)
            return ExitCode.USAGE
        code = get_command(app).main(words, prog_name="kfuzz", standalone_mode=False)
        sys.stdout.flush()
        mirror.finish()
        return ExitCode(code or 0)
    except SystemExit as ended:
        if VARIABLE in os.environ:  # the shell has its completions
            return int(ended.code or 0)
        discard_stdout()
        return ExitCode.INTERRUPTED
    except (ReaderGoneError, BrokenPipeError):
        # Whoever read the report has left (typer exits then); findings are saved.
        discard_stdout()
        return ExitCode.INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, OutputError):
            discard_stdout()
        return report_error(error, verbose=verbose)
