"""kfuzz contracts list|show: the promises that kernels are held to."""

from typing import Annotated, Final

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.streams import report_stream

_FORMATS: Final = ("text", "markdown", "json")
_FormatOption = Annotated[
    str,
    typer.Option("--format", metavar="text|markdown|json", help="What to print."),
]

contracts_app = typer.Typer(
    help="Look at the contracts.", rich_markup_mode=None, add_completion=False
)


@contracts_app.command("list")
def list_(format: _FormatOption = "text") -> int:
    """List every contract of every operator."""
    from kfuzz.contracts.suite import every_contract
    from kfuzz.report import json_report
    from kfuzz.report.lists import contract_lines
    from kfuzz.report.promises import promise

    options.choice(format, _FORMATS, "--format")
    contracts = every_contract()
    with report_stream() as out:
        if format == "json":
            shown = [json_report.contract_document(c) for c in contracts]
            json_report.write({"contracts": shown}, out)
        elif format == "markdown":
            for contract in contracts:
                print(f"- `{contract.identifier}`: {promise(contract)}", file=out)
        else:
            for line in contract_lines(contracts):
                print(line, file=out)
    return ExitCode.OK


@contracts_app.command()
def show(
    id: Annotated[
        str, typer.Argument(metavar="ID", help='Class and operator: "C-PRC-01/matmul".')
    ],
    format: _FormatOption = "text",
) -> int:
    """Show the eight parts of one contract."""
    from kfuzz.contracts.suite import find_contract
    from kfuzz.report import json_report, promises

    options.choice(format, _FORMATS, "--format")
    contract = find_contract(id)
    with report_stream() as out:
        if format == "json":
            document = json_report.contract_page(contract)
            json_report.write({"contract": document}, out)
            return ExitCode.OK
        as_page = format == "markdown"
        draw = promises.contract_markdown if as_page else promises.contract_text
        for line in draw(contract):
            print(line, file=out)
    return ExitCode.OK
