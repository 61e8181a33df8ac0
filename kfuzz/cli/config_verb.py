"""kfuzz config: the settings that hold for a run, and which place says each."""

from typing import Annotated

import typer

from kfuzz.cli import options
from kfuzz.cli.effective import Effective
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import as_plain, as_text
from kfuzz.cli.streams import report_stream
from kfuzz.engine.search.profiles import PROFILES
from kfuzz.store import strict_json


def config(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help=f"{', '.join(PROFILES)}, or one of the project's own. Default: the "
            "one in force.",
            show_default=False,
        ),
    ] = None,
    format: options.FormatOption = "text",
) -> int:
    """Print the settings of `kfuzz run` as they hold here, each with its source.

    The command line goes before the environment (KFUZZ_MAX_TIME for --max-time), that
    before [tool.kfuzz.profiles.NAME], that before [tool.kfuzz] in pyproject.toml, that
    before what the profile sets by itself.
    """
    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    project = open_project(None)
    settings = Effective({"profile": profile}, project.config)
    chosen = {key: (c.value, c.source) for key, c in settings.chosen.items()}
    chosen["corpus"] = (project.corpus, chosen["corpus"][1])
    file = project.config.file
    strangers = settings.unknown_variables()
    if as_json:
        document = {
            "format": 1,
            "file": None if file is None else str(file),
            "profile": settings.profile,
            "profiles": sorted({*PROFILES, *project.config.profiles}),
            "settings": {
                key: {"value": as_plain(value), "source": source}
                for key, (value, source) in chosen.items()
            },
            "unknown_variables": [name for name, _ in strangers],
        }
        with report_stream() as out:
            print(strict_json.dumps(document), end="", file=out)
        return ExitCode.OK
    rows = [(key, as_text(value), source) for key, (value, source) in chosen.items()]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:2]]
    with report_stream() as out:
        for key, value, source in rows:
            line = f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}"
            print(line, file=out)
        print(f"file: {file or 'no pyproject.toml here or above'}", file=out)
        for name, hint in strangers:
            print(f"{name} is set and is no setting: {hint}", file=out)
    return ExitCode.OK
