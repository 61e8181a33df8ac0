"""What the documents list is what the tree has."""

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from typer.main import get_command

import kfuzz
from kfuzz.app import app
from tests.helpers.generated_docs import COMMAND, DOCUMENTS

ROOT = Path(__file__).parents[2]
COMMANDS: Any = get_command(app)
NAMED = re.compile(r"`([a-z_0-9]+)\.py`")
DOCUMENTATION = sorted(
    str(path.relative_to(ROOT))
    for folder in (
        ".",
        ".github",
        "contracts",
        "corpus",
        "kfuzz",
        "strategies",
        "tests",
    )
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)


@pytest.mark.parametrize(
    "folder",
    [
        "contracts",
        "strategies",
        "kfuzz/cuda",
        "kfuzz/features/monitor",
        "kfuzz/features/judge",
    ],
)
def test_a_folders_readme_names_its_files_and_no_others(folder: str) -> None:
    place = ROOT / folder
    named = set(NAMED.findall((place / "README.md").read_text()))
    own = {path.stem for path in place.glob("*.py")} - {"__init__"}
    assert sorted(own - named) == []
    assert sorted(named - {path.stem for path in place.rglob("*.py")}) == []


def _verbs(of: Any) -> list[Any]:
    inner = [
        verb for group in of.registered_groups for verb in _verbs(group.typer_instance)
    ]
    return inner + [command.callback for command in of.registered_commands]


@pytest.mark.parametrize("verb", _verbs(app), ids=lambda verb: verb.__name__)
def test_every_option_has_a_type(verb: Any) -> None:
    # Releases of typer before 0.25 know no option of type Any and list no command then.
    named = inspect.signature(verb).parameters
    types = {k: v for k, v in get_type_hints(verb).items() if k in named}
    assert [name for name, kind in types.items() if kind is Any] == []


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_generated_document_is_what_the_code_gives(path: str) -> None:
    committed = (ROOT / path).read_text()
    assert committed == DOCUMENTS[path](), f"run `{COMMAND}` and commit {path}"


@pytest.mark.parametrize("path", DOCUMENTATION)
def test_links_lead_somewhere(path: str) -> None:
    text = without_code((ROOT / path).read_text())
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        goal = (ROOT / path).parent / name if name else ROOT / path
        assert goal.exists(), link
        if anchor:
            assert anchor in anchors(goal.read_text()), link


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return what GitHub names the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.replace(" ", "-") for head in kept}


@pytest.mark.parametrize("path", DOCUMENTATION)
def test_the_commands_in_a_document_exist(path: str) -> None:
    text = (ROOT / path).read_text()
    if path == "CHANGELOG.md":
        pytest.skip("it names what there was")
    spans = re.findall(r"`(kfuzz [^`]*)`", text.replace("\n", " "))
    fences = "".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    spans += re.findall(
        r"(?:^|&& |bin/|run: |srun )(kfuzz [a-z][^\n#;&]*)", fences, re.MULTILINE
    )
    for span in spans:
        command, words = COMMANDS, span.split()[1:]
        while words and hasattr(command, "commands") and words[0][0].isalpha():
            assert words[0] in command.commands, span
            command, words = command.commands[words[0]], words[1:]
        valid = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= valid, span


def test_the_kernels_of_the_readme_can_be_bound() -> None:
    [example] = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S
    )
    space: dict[str, Any] = {"__name__": "first_page"}
    exec(example, space)
    assert space["my_softmax"].operator.name == "softmax"


@pytest.mark.slow
@pytest.mark.parametrize(("cast", "found"), [(True, set()), (False, {"C-PRC-01"})])
def test_the_example_of_an_operator_is_searched(cast: bool, found: set[str]) -> None:
    page = (ROOT / "contracts" / "operators" / "README.md").read_text()
    example, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    space: dict[str, Any] = {"__name__": f"operators_readme_{cast}"}
    exec(example if cast else example.replace(".float()", ""), space)
    findings = kfuzz.falsify(space["my_scaled_sum"], max_cases=60, device="cpu")
    assert found <= {f.signature.contract for f in findings}
    assert found or not findings


def test_the_map_of_the_architecture_matches_the_tree() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([\w./]+(?:/|\.(?:py|md|toml)))`", text)
    assert len(named) >= 40
    places = ("", "kfuzz")
    missing = [n for n in named if not any((ROOT / p / n).exists() for p in places)]
    assert missing == []
    packages = {path.parent.name for path in (ROOT / "kfuzz").glob("*/__init__.py")}
    layers = text.partition("## Layers")[2].partition("\n## ")[0]
    assert {p for p in packages if f"`kfuzz/{p}/`" not in layers} == {
        "contracts", "strategies"
    }  # fmt: skip


@pytest.mark.parametrize("page", DOCUMENTATION)
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    places = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "kfuzz").rglob("*.*")]
    for folder in ("contracts", "corpus", "strategies", "tests", ".ci", ".github"):
        places += [f"/{p.relative_to(ROOT)}" for p in (ROOT / folder).rglob("*.*")]
    text = (ROOT / page).read_text()
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|md|toml|jinja))`", text)
    missing = [
        name
        for name in named
        if not (ROOT / name).exists()
        and not any(p.endswith(f"/{name}") for p in places)
    ]
    assert page == "CHANGELOG.md" or missing == []
