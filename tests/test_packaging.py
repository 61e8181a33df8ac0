"""What is built: the packages of the tree, whole and importable anywhere."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import kfuzz

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked() -> list[str]:
    """Return the files that a commit of the working tree would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.splitlines()
    return [n for n in names if (ROOT / n).is_file() or (ROOT / n).is_symlink()]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel from a copy, so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("build") / "source"
    for name in tracked():
        goal = copy / name
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, goal, follow_symlinks=False)
    # setuptools-scm asks git for the files of the last commit.
    run("git", "init", "-q", cwd=copy)
    run("git", "add", "-A", cwd=copy)
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    run("git", *who, "commit", "-q", "--no-gpg-sign", "-m", "all", cwd=copy)
    # The sdist first, the wheel from it: what users of the sdist get.
    run(sys.executable, "-m", "build", "--no-isolation", cwd=copy)
    return copy / "dist"


def test_version_is_said_once() -> None:
    assert PROJECT["project"]["version"] == kfuzz.__version__


def test_declared_packages_are_those_of_the_tree() -> None:
    found = set()
    for package, folder in SETUPTOOLS["package-dir"].items():
        for marker in (ROOT / folder).rglob("__init__.py"):
            parts = marker.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *parts)))
    assert set(SETUPTOOLS["packages"]) == found
    assert SETUPTOOLS["packages"] == sorted(SETUPTOOLS["packages"])


def test_every_folder_with_modules_is_a_package() -> None:
    for folder in ("kfuzz", "strategies", "contracts"):
        for module in (ROOT / folder).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_every_direct_requirement_is_pinned() -> None:
    pins = set()
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==", 1)
            assert version, line
            pins.add(name.lower().replace("_", "-"))
    extras = PROJECT["project"]["optional-dependencies"].values()
    needed = [*PROJECT["project"]["dependencies"], *(r for e in extras for r in e)]
    assert {re.split(r"[<>=;\[ ]", r)[0].lower() for r in needed} <= pins


def test_the_wheel_holds_the_packages_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names} == {
        "kfuzz",
        f"kfuzz-{kfuzz.__version__}.dist-info",
    }
    assert "kfuzz/py.typed" in names
    # What tells which contracts are calibrated.
    statements = (n for n in names if n.startswith("kfuzz/contracts/platform/statem"))
    assert any(n.endswith("-cpu.json") for n in statements)
    info = f"kfuzz-{kfuzz.__version__}.dist-info/entry_points.txt"
    with zipfile.ZipFile(wheel) as archive:
        assert "[pytest11]\nkfuzz = kfuzz.pytest_plugin" in archive.read(info).decode()
    assert any(n.endswith("licenses/LICENSE") for n in names)
    modules = {f"kfuzz/{n.removeprefix('kfuzz/')}" for n in tracked()
               if n.endswith(".py") and n.split("/")[0] in
               ("kfuzz", "strategies", "contracts")}  # fmt: skip
    assert {n for n in names if n.endswith(".py")} == modules


def test_the_sdist_holds_every_tracked_file(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {n.split("/", 1)[1] for n in archive.getnames() if "/" in n}
    links = {"kfuzz/strategies", "kfuzz/contracts"}
    assert set(tracked()) - links <= names


@pytest.mark.parametrize(
    "module", ["kfuzz", "kfuzz.core.codec", "kfuzz.store.corpus", "kfuzz.strategies",
               "kfuzz.contracts"],
)  # fmt: skip
def test_the_wheel_imports_from_anywhere(
    dist: Path, module: str, tmp_path: Path
) -> None:
    (wheel,) = dist.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); "
        f"import {module} as m; print(m.__file__)"
    )
    where = run(sys.executable, "-P", "-c", code, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(site)
