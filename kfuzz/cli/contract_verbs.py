"""kfuzz contracts list|show: the promises that kernels are held to."""

from typing import Annotated

import typer

from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.settings import shared
from kfuzz.cli.standard_streams import print_report
from kfuzz.cli.values import one_of

_FormatOption = Annotated[
    str, shared("format", "What to print.", kind=one_of("text", "markdown", "json"))
]

contracts_app = typer.Typer(
    help="Look at the contracts.", rich_markup_mode=None, add_completion=False
)


@contracts_app.command("list")
def list_(format: _FormatOption = "text") -> int:
    """List every contract of every operator."""
    from kfuzz.contracts.suite import every_contract
    from kfuzz.report.json_report import contract_document
    from kfuzz.report.lists import contract_lines
    from kfuzz.report.promises import promise

    contracts = every_contract()
    print_report(
        format,
        lambda: {"contracts": [contract_document(c) for c in contracts]},
        lambda: (
            [f"- `{c.identifier}`: {promise(c)}" for c in contracts]
            if format == "markdown"
            else contract_lines(contracts)
        ),
    )
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
    from kfuzz.report import promises
    from kfuzz.report.json_report import contract_page

    contract = find_contract(id)
    as_page = format == "markdown"
    draw = promises.contract_markdown if as_page else promises.contract_text
    print_report(
        format,
        lambda: {"contract": contract_page(contract)},
        lambda: draw(contract),
    )
    return ExitCode.OK
