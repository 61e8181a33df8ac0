"""Entries of the ledger: a script each, whose docstring says what it shows."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
LEDGER: Final = HERE / "ledger"
PAGE: Final = HERE / "LEDGER.md"
LONGEST: Final = 40
# What a script answers with.
SHOWS, MENDED, NOT_HERE = 1, 0, 77

REQUIRED: Final = (
    "package", "operator", "input", "expected", "actual", "line", "since", "last",
    "state", "finite", "device",
)  # fmt: skip
OPTIONAL: Final = ("needs",)
CHOICES: Final = {
    "finite": ("yes", "no"),
    "device": ("any", "cuda", "interpret"),
    "state": ("new", "known upstream", "mended in"),
}


class EntryError(ValueError):
    """A script's docstring does not say what an entry says."""


@dataclass(frozen=True)
class Entry:
    """A true fault of a released package.

    Attributes:
        path: its script, which exits with 1 where the fault shows, 0 where it does
            not, and 77 where it cannot tell.
        sentence: what is wrong.
        said: the docstring's fields, by name: those of `REQUIRED` and `OPTIONAL`.
    """

    path: Path
    sentence: str
    said: dict[str, str]

    @property
    def name(self) -> str:
        """What the entry is called."""
        return self.path.stem

    @property
    def code(self) -> str:
        """What the script does, without what it says."""
        return self.path.read_text().rpartition('"""')[2].strip()

    @property
    def package(self) -> str:
        """The distribution, as the index spells it."""
        return self.said["package"]

    @property
    def needs(self) -> tuple[str, ...]:
        """What else is installed, without what that depends on."""
        return tuple(self.said.get("needs", "").split())


def read(path: Path) -> Entry:
    """Return what a script says of itself.

    Raises:
        EntryError: with the file and what is wrong in it.
    """
    text = path.read_text()
    sentence, _, fields = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
    said: dict[str, str] = {}
    for line in fields.splitlines():
        if line.startswith(" ") and said:
            last = list(said)[-1]
            said[last] = f"{said[last]} {line.strip()}".strip()
            continue
        name, _, value = line.partition(":")
        if name in said:
            raise EntryError(f"{path}: {name} is said twice")
        said[name] = value.strip()
    wrong = [f"{name} is not said" for name in REQUIRED if not said.get(name)]
    wrong += [f"no field is named {n!r}" for n in said if n not in REQUIRED + OPTIONAL]
    wrong += [
        f"{name}: {said[name]!r} does not begin with one of {', '.join(choices)}"
        for name, choices in CHOICES.items()
        if said.get(name) and not said[name].startswith(choices)
    ]
    if (long := len(text.splitlines())) > LONGEST:
        wrong.append(f"has {long} lines, {LONGEST} are allowed")
    if wrong:
        raise EntryError(f"{path}: {'; '.join(wrong)}")
    return Entry(path, " ".join(sentence.split()), said)


def entries() -> list[Entry]:
    """Return all entries, by package and name."""
    found = map(read, LEDGER.glob("*.py"))
    return sorted(found, key=lambda entry: (entry.package, entry.name))


def table_row(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def page(found: Iterable[Entry]) -> str:
    """Return LEDGER.md: a table, then each entry whole."""
    found = list(found)
    packages = {entry.package for entry in found}
    finite = sum(entry.said["finite"] == "yes" for entry in found)
    lines = [
        "# The ledger",
        "",
        f"{len(found)} true faults of {len(packages)} released packages, {finite} of "
        "them on finite ordinary input. Each has a script",
        "of at most 40 lines that needs torch and the package alone; `python -m "
        "tests.hunt --ledger` runs",
        "them. Made of the scripts by `python -m tests.hunt --write`; "
        "[README](README.md) says how. *since* and",
        "*last* are the oldest and the newest release that show it, lines are those "
        "of the newest; *new* means that no",
        "report of it was found. Entries of a CPU run there in Triton's interpreter.",
        "",
        "| entry | package | since | last | what is wrong | shows on | state |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in found:
        said = entry.said
        cells = [
            f"[{entry.name}](#{entry.name})", entry.package, said["since"],
            said["last"], entry.sentence,
            {"any": "CPU, GPU", "cuda": "GPU", "interpret": "CPU"}[said["device"]],
            said["state"],
        ]  # fmt: skip
        lines.append(table_row(cells))
    for entry in found:
        said = entry.said
        lines += ["", f"## {entry.name}", "", entry.sentence, ""]
        releases = f"{entry.package} {said['since']} to {said['last']}"
        script = f"[script](ledger/{entry.path.name})"
        lines.append(f"* {releases}, `{said['operator']}`: {script}")
        lines += [f"* {name}: {said[name]}" for name in ("input", "expected", "actual")]
        lines.append(f"* line: `{said['line'].replace('`', '')}`")
        lines.append(f"* state: {said['state']}")
        lines += ["", "```python", entry.code, "```"]
    return "\n".join(lines) + "\n"
