"""The ledger is what its scripts say, and hunting sorts what it finds."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hunt import replaying, searching, wheels
from tests.hunt.__main__ import main
from tests.hunt.bare import absent, bare
from tests.hunt.entry import LEDGER, PAGE, EntryError, entries, page, read

SCRIPTS = sorted(LEDGER.glob("*.py"))
SAID = '''"""add forgets its second argument.

package: adder
operator: adder.add
input: 1 and 2
expected: 3
actual: 1,
  the first
line: adder.py:2: returns a
since: 1.0
last: 1.1
state: new
finite: yes
device: any
"""
'''
CODE = """
import adder

raise SystemExit(adder.add(1, 2) != 3)
"""


def test_the_page_is_made_of_the_scripts() -> None:
    assert PAGE.read_text() == page(entries()), "python -m tests.hunt --write"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_needs_torch_and_the_package_alone(path: Path) -> None:
    entry = read(path)
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] not in {"kfuzz", "tests", "numpy"}, entry.name
    assert "SystemExit" in path.read_text()


def test_no_file_of_bindings_hides_a_package() -> None:
    """Its folder is on the path, so that other packages would import it."""
    named = {package.replace("-", "_") for package in searching.bound()}
    assert named.isdisjoint(path.stem for path in searching.PACKAGES.glob("*.py"))


def test_every_judged_kernel_is_bound() -> None:
    known = searching.bound()
    for package, kernel, contract in searching.judgements():
        if package != "package" and not contract.startswith(("---", "–")):
            assert kernel in known[package].kernels, f"{package}: {kernel}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("state: new\n", ""), "state is not said"),
        (("finite: yes", "finite: perhaps"), "finite: 'perhaps' does not begin with"),
        (("finite: yes", "finite: yes\ncolour: red"), "no field is named 'colour'"),
        (('"""\n', '"""\n' + "pass\n" * 40), "lines, 40 are allowed"),
    ],
)
def test_a_wrong_entry_is_told(
    change: tuple[str, str], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "entry.py"
    head, _, tail = (SAID + CODE).rpartition(change[0])
    path.write_text(head + change[1] + tail)
    with pytest.raises(EntryError, match=told):
        read(path)


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An entry whose package, of 5 releases, is mended in 2.0."""
    bodies = {"0.9": "a + b", "1.0": "a", "1.1": "a", "2.0": "a + b", "2.1": "a + b"}
    for version, body in bodies.items():
        folder = tmp_path / f"adder-{version}"
        folder.mkdir()
        (folder / "adder.py").write_text(f"def add(a, b):\n    return {body}\n")
    monkeypatch.setattr(wheels, "releases", lambda _: list(bodies))
    script = tmp_path / "adder_forgets.py"
    script.write_text(SAID + CODE)
    return read(script)


def test_an_entry_is_found_mended_by_itself(entry, tmp_path: Path) -> None:
    seen = list(replaying.mended(entry, "cpu", tmp_path))
    assert [(ran.version, ran.outcome) for ran in seen] == [
        ("2.1", replaying.MENDED),
        ("2.0", replaying.MENDED),
    ]


def test_older_releases_are_asked_until_one_is_right(entry, tmp_path: Path) -> None:
    seen = [(r.version, r.outcome) for r in replaying.since(entry, "cpu", tmp_path)]
    assert seen == [
        ("1.1", replaying.SHOWS),
        ("1.0", replaying.SHOWS),
        ("0.9", replaying.MENDED),
    ]


def test_a_script_that_breaks_shows_nothing(entry, tmp_path: Path) -> None:
    (tmp_path / "adder-1.1" / "adder.py").write_text("import nowhere\n")
    ran = replaying.ran(entry, "1.1", "cpu", tmp_path)
    assert ran.outcome == replaying.NOT_HERE
    assert "nowhere" in ran.printed


def test_bindings_are_read_without_their_package() -> None:
    assert "conch" not in sys.modules
    known = searching.bound()
    assert "conch_rms_norm" in known["conch-triton-kernels"].kernels


def test_a_module_is_imported_without_what_stands_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "served" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("raise RuntimeError\n")
    text = "from served.platform import cores, is_here\nhere = bool(is_here())\n"
    (inner / "kernel.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    bare("served")
    absent("served.platform", cores=4)
    kernel = importlib.import_module("served.inner.kernel")
    assert (kernel.cores, kernel.here) == (4, False)
    with pytest.raises(ModuleNotFoundError, match="unserved is not on the path"):
        bare("unserved")


@pytest.mark.parametrize(("cases", "code"), [(0, 1), (5, 0)])
def test_a_search_that_compared_nothing_fails(
    cases: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "install", lambda *_: tmp_path)
    monkeypatch.setattr(
        searching, "search", lambda *words, **_: searching.Searched(words[-1], cases)
    )
    words = ["", "--package", "torchnorm==1.0", "--keep", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == code


@pytest.mark.slow
def test_a_released_kernel_is_searched(tmp_path: Path) -> None:
    words = "--package conch-triton-kernels --kernels conch_rms_norm --seconds 5"
    done = subprocess.run(
        [sys.executable, "-m", "tests.hunt", *words.split(), "--keep", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| conch_rms_norm \| [1-9][0-9]*", done.stdout)
