"""What is built: the packages of the tree, whole and importable anywhere."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def pins() -> set[str]:
    """Return the normalised names that constraints.txt pins."""
    names = set()
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==", 1)
            assert version, line
            names.add(canonicalize_name(name))
    return names


def declared() -> list[Requirement]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    needed = [*PROJECT["project"]["dependencies"], *(r for e in extras for r in e)]
    return [Requirement(text) for text in needed]


def installed_requirements() -> set[str]:
    """Return the project's requirements, and theirs, as far as they are installed."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo = [(r, "") for r in declared()]
    while todo:
        requirement, extra = todo.pop()
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here
        found.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                todo += [(Requirement(text), wanted) for text in needed]
    return found


def test_every_direct_requirement_is_pinned() -> None:
    assert {canonicalize_name(r.name) for r in declared()} <= pins()


def test_every_installed_requirement_is_pinned() -> None:
    # torch names the exact version of each library of CUDA's and ROCm's itself.
    of_torch = re.compile(r"nvidia-|cuda-|pytorch-triton|triton-rocm")
    found = {name for name in installed_requirements() if not of_torch.match(name)}
    assert {"torch", "sympy", "mpmath"} <= found  # what needs what is followed
    assert sorted(found - pins()) == []


def test_the_wheel_holds_the_packages_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names} == {
        "kfuzz",
        f"kfuzz-{kfuzz.__version__}.dist-info",
    }
    assert "kfuzz/py.typed" in names
    documents = {f"kfuzz/{n.removeprefix('kfuzz/')}" for n in tracked()
                 if n.endswith(".md") and n.split("/")[0] in
                 ("kfuzz", "strategies", "contracts")}  # fmt: skip
    assert {n for n in names if n.endswith(".md")} == documents
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


@pytest.mark.slow
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


POINTS = PROJECT["project"]["entry-points"]
NAMED = POINTS["kfuzz.verbs"] | POINTS["kfuzz.hooks"]


@pytest.mark.parametrize("name", NAMED)
def test_what_a_feature_adds_is_there(name: str) -> None:
    assert metadata.EntryPoint(name, NAMED[name], "kfuzz").load() is not None
