"""kfuzz init: bindings and files for a project, tolerances of its tests, a skill."""

import os
import re
import threading
from collections import Counter
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kfuzz.cli.project import SECTION, Config, read_config
from kfuzz.cli.settings import option
from kfuzz.cli.streams import ExitCode
from kfuzz.core.errors import UsageError
from kfuzz.report.files import require_writable, write_new
from kfuzz.report.text import counted, one_line
from kfuzz.store.files import read_source
from kfuzz.targets.load import project_root

if TYPE_CHECKING:
    from kfuzz.cli.checking import CheckedKernel

_SKILL: Final = Path(__file__).with_name("SKILL.md")
# The workflows that the document shows are those that are written.
_WORKFLOWS: Final = Path(__file__).parents[2] / "cli" / "CI.md"
_WORKFLOW: Final = re.compile(r"```yaml\n# (\.github/\S+)\n(.*?)```", re.DOTALL)
_REQUIREMENTS: Final = "requirements-dev.txt"


def init(
    package: Annotated[
        str | None,
        typer.Argument(metavar="PACKAGE", help="An installed package, as imported."),
    ] = None,
    tolerances: Annotated[
        list[Path] | None,
        option(
            "--tolerances",
            "Run these tests once, and list their tolerances beside derived bounds. "
            "Repeatable.",
            metavar="PATH",
        ),
    ] = None,
    write: Annotated[
        bool,
        option(
            "--write",
            "Replace those whose operator is recognised and whose results conform.",
        ),
    ] = False,
    agent: Annotated[
        bool, option("--agent", "Install a skill for coding agents: kfuzz/SKILL.md.")
    ] = False,
    into: Annotated[
        Path,
        option(
            "--into",
            "Folder of skills; .claude/skills is where Claude Code and others look.",
            metavar="FOLDER",
        ),
    ] = Path(".claude/skills"),
) -> int:
    """Set up kfuzz: bindings for a package, settings, workflows; or a skill.

    For PACKAGE it calls public functions that launch Triton kernels with small inputs
    of operators, and binds each to the operator within whose bound its results lie.
    `kfuzz check` tries every binding before it is written to kfuzz_PACKAGE.py. With it
    come [tool.kfuzz] in pyproject.toml, and workflows for pull requests and the night.
    No file that is there is changed, but a pyproject.toml without the section gets it.

    Exit codes: 0 done, 2 usage, or a file is there already, 3 internal error, 4 nothing
    was found.
    """
    if write and not tolerances:
        raise UsageError("--write has nothing to replace", fix="add --tolerances PATH")
    if not (package or tolerances or agent):
        raise UsageError(
            "nothing to set up", fix="name a package, or give --tolerances or --agent"
        )
    codes = []
    if agent:
        place = into / "kfuzz" / _SKILL.name
        _write_new(place, _SKILL.read_text(encoding="utf-8"))
        typer.echo(f"{place}: written")
    if package:
        codes.append(_package(package))
    if tolerances:
        from kfuzz.features.observe.tolerances import listed

        codes.append(listed(tolerances, write=write))
    return max(codes, default=ExitCode.OK)


def _write_new(place: Path, text: str) -> None:
    """Write a file that is not there.

    Raises:
        UsageError: if it is, or cannot be written.
    """
    _require_absent(place)
    require_writable(place, where=str(place), with_folder=True)
    place.unlink(missing_ok=True)
    write_new(place, text)


def _require_absent(place: Path) -> None:
    if os.path.lexists(place):
        fix = "remove or rename it, and run the command again"
        raise UsageError("is there already", where=str(place), fix=fix)


def _package(package: str) -> ExitCode:
    """Write what a package needs."""
    import torch

    from kfuzz.features.examining import write_or_raise
    from kfuzz.features.observe.faults import scratch
    from kfuzz.features.observe.package import tried
    from kfuzz.features.observe.writing import bindings, names

    try:
        known = find_spec(package) is not None
    except (ImportError, ValueError):
        known = False
    if not known:
        fix = "install it here, or add its folder to PYTHONPATH"
        raise UsageError("cannot be imported", where=package, fix=fix)
    config, root = read_config(), project_root()
    file = root / f"kfuzz_{package.replace('.', '_')}.py"
    _require_absent(file)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    command = f"kfuzz init {package}"
    answers: dict[str, str] = {}
    with scratch("init") as folder:
        found, kernels, failed = tried(package, folder, device)
    for module, why in failed.items():
        typer.echo(f"not imported: {module}: {one_line(why)}"[:160])
    made = found
    if any(guess for _, guess in found):
        _write_new(file, bindings(found, command=command, sized=False))
        try:
            answers = _checked(file, root)
            made = [
                (callee, None if answers.get(name, _WRONG) == _WRONG else guess)
                for (callee, guess), name in zip(found, names(found), strict=True)
            ]
            write_or_raise(file, bindings(made, command=command, sized=False))
        except BaseException:
            file.unlink()
            raise
    bound = sum(guess is not None for _, guess in made)
    functions = counted(len(made), "function")
    if not bound:
        file.unlink(missing_ok=True)
        typer.echo(
            f"kfuzz: of {functions} that launch kernels none agrees with an operator: "
            f"{file.name} was not written",
            err=True,
        )
        return ExitCode.NOTHING_TO_RUN
    counts = Counter(answers.values())
    typer.echo(
        f"{file.name}: {counted(kernels, 'kernel')}, launched by {functions}: {bound} "
        f"bound and checked ({counts[_OK]} ok, {counts[_DIFFERS]} with violations to "
        f"look at), {len(made) - bound} for a person to name"
    )
    _settings(config, root, file.name)
    _workflows(root, package)
    typer.echo(f"next: kfuzz run {file.name} --max-time 60s")
    return ExitCode.OK


# What a check says of a binding.
_OK: Final = "ok"
_DIFFERS: Final = "differs"
_WRONG: Final = "wrong"


def _checked(file: Path, root: Path) -> dict[str, str]:
    """Return what came of a check of each binding in a file, by its name."""
    from kfuzz.cli.checking import check_all

    answers = {}
    stop = threading.Event()
    for each in check_all([str(file)], root=root, device="auto", stop=stop):
        name = each.kernel.rpartition(":")[2]
        answers[name], why = _answer(each)
        typer.echo(f"check {name}: {one_line(why)}"[:200])
    return answers


def _answer(checked: "CheckedKernel") -> tuple[str, str]:
    """Return what a check says of a binding, and why.

    One that does not even compute the operator on the first plain case is wrong.
    """
    from kfuzz.cli.checking import Answer

    bad = [c for c in checked.cases if c.answer in (Answer.VIOLATES, Answer.ERROR)]
    held = sum(c.answer is Answer.OK for c in checked.cases)
    if not held or (bad and bad[0] is checked.cases[0]):
        why = bad[0].message if bad else checked.uncompared
        return _WRONG, f"not bound: {why}"
    if bad:
        return _DIFFERS, f"{bad[0].dtype}, {bad[0].layout}: {bad[0].message}"
    return _OK, f"ok in {counted(held, 'case')}"


def _settings(config: Config, root: Path, target: str) -> None:
    """Add the section to a pyproject.toml that has none."""
    file = config.file or root / "pyproject.toml"
    target = os.path.relpath(root / target, file.parent)
    section = f'{SECTION}\ntargets = ["{target}"]\n'
    text = read_source(file) if config.file else ""
    if config.values or config.profiles or SECTION in text:
        if target not in text:
            typer.echo(f'{file.name}: has {SECTION}; add "{target}" to its targets')
        return
    with file.open("a", encoding="utf-8") as out:
        out.write(f"{'' if not text else chr(10)}{section}")
    typer.echo(f"{file.name}: {SECTION} added")


def _workflows(root: Path, package: str) -> None:
    """Write the workflows of CI.md that are not there."""
    needed = f"-r {_REQUIREMENTS}"
    if not (root / _REQUIREMENTS).is_file():
        named = packages_distributions().get(package.partition(".")[0], [])
        needed = " ".join(["kfuzz pytest", *(f"{n}=={version(n)}" for n in named[:1])])
    for name, text in _WORKFLOW.findall(_WORKFLOWS.read_text(encoding="utf-8")):
        place = root / name
        if place.exists():
            typer.echo(f"{name}: is there, and stays as it is")
            continue
        text = re.sub(rf"-r {re.escape(_REQUIREMENTS)}( +#.*)?", needed, text)
        _write_new(place, text)
        typer.echo(f"{name}: written; it installs {needed}")
