"""kfuzz contracts list|operators|show: what kernels are held to."""

import fnmatch
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from kfuzz.cli import completion
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.settings import shared, targets_argument
from kfuzz.cli.standard_streams import print_report
from kfuzz.cli.values import one_of
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import UsageError, suggestion

_FormatOption = Annotated[
    str, shared("format", "What to print.", kind=one_of("text", "markdown", "json"))
]

contracts_app = typer.Typer(
    help="Look at the contracts.", rich_markup_mode=None, add_completion=False
)


@contracts_app.command("list")
def list_(
    glob: Annotated[
        str,
        typer.Argument(
            metavar="[GLOB]",
            help='Name the contracts that match: "C-PRC-*", "*/softmax".',
            show_default=False,
            autocompletion=completion.contracts,
        ),
    ] = "",
    format: _FormatOption = "text",
) -> int:
    """List the contract classes, each with the number of operators that it binds."""
    from kfuzz.contracts.suite import every_contract
    from kfuzz.report.json_report import contract_document
    from kfuzz.report.lists import contract_lines
    from kfuzz.report.operator_pages import class_lines
    from kfuzz.report.promises import promise

    every = every_contract()
    chosen = [c for c in every if not glob or _matches(c.identifier, glob)]
    if not chosen:
        fix = "`kfuzz contracts list` names the classes, `operators` the operators"
        raise UsageError(f"no contract matches {glob!r:.60}", fix=fix)

    def lines() -> list[str]:
        if not glob:
            return class_lines(every, markdown=format == "markdown")
        if format == "markdown":
            return [f"- `{c.identifier}`: {promise(c)}" for c in chosen]
        return contract_lines(chosen)

    print_report(
        format, lambda: {"contracts": [contract_document(c) for c in chosen]}, lines
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
    format: _FormatOption = "text",
) -> int:
    """List the operators, each with its call and the number of its contracts."""
    from kfuzz.contracts.operators import OPERATORS
    from kfuzz.report import operator_pages

    def every() -> Sequence[Operator]:
        return _operators_of(targets) if targets else list(OPERATORS.values())

    print_report(
        format,
        lambda: {"operators": list(map(operator_pages.operator_document, every()))},
        lambda: operator_pages.operator_lines(every(), markdown=format == "markdown"),
    )
    return ExitCode.OK


@contracts_app.command()
def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help='A contract ("C-PRC-01/matmul"), a class ("C-PRC-01"), an operator '
            '("matmul"), or a kernel with an operator of your own '
            '("my_kernels.py::rope").',
            autocompletion=completion.contracts,
        ),
    ],
    format: _FormatOption = "text",
) -> int:
    """Show the eight parts of one contract or class, or what an operator promises."""
    from kfuzz.contracts.classes import CLASSES
    from kfuzz.contracts.operators import OPERATORS
    from kfuzz.contracts.suite import find_contract
    from kfuzz.report import operator_pages, promises
    from kfuzz.report.json_report import contract_page

    as_page = format == "markdown"
    draw = promises.contract_markdown if as_page else promises.contract_text
    is_target = ":" in id or id.endswith((".py", "/"))
    if id in CLASSES or ("/" in id and not is_target):
        found = promises.class_contract(id) if id in CLASSES else find_contract(id)
        print_report(
            format, lambda: {"contract": contract_page(found)}, lambda: draw(found)
        )
        return ExitCode.OK
    chosen: Callable[[], Sequence[Operator]]
    if id in OPERATORS:
        chosen = lambda: [OPERATORS[id]]  # noqa: E731
    elif is_target:
        chosen = lambda: _operators_of([id])  # noqa: E731
    else:
        names = [*CLASSES, *OPERATORS]
        raise UsageError(
            f"no contract class or operator {id!r:.60}",
            fix=suggestion(id, names).partition("valid:")[0]
            + "`kfuzz contracts list` and `kfuzz contracts operators` print all",
        )
    print_report(
        format,
        lambda: {"operators": [operator_pages.operator_document(o) for o in chosen()]},
        lambda: [
            line
            for o in chosen()
            for line in (*operator_pages.operator_page(o, markdown=as_page), "")
        ][:-1],
    )
    return ExitCode.OK


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
