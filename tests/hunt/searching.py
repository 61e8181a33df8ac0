"""Searches the bindings of one released package, and sorts what it finds."""

import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.hunt import wheels

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PACKAGES: Final = HERE / "packages"
JUDGED: Final = HERE / "JUDGED.md"
# A run keeps its time to within 5 % or 10 s; start and end come on top.
GRACE_SECONDS: Final = 240.0
UNJUDGED: Final = "to be judged"


@dataclass(frozen=True)
class Bound:
    """The bindings of one package.

    Attributes:
        path: their file.
        package: the distribution, as the index spells it.
        version: the release that they were written for.
        needs: what else is installed, without what that depends on.
        kernels: the names bound.
    """

    path: Path
    package: str
    version: str
    needs: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Searched:
    """What the search of one kernel came to.

    Attributes:
        kernel: its name.
        cases: cases judged.
        structures: different shapes, formats and strides among them.
        findings: as the JSON document has them, each with "judged", its row of
            JUDGED.md or `UNJUDGED`, and "before", what the release before does.
        error: why nothing was judged; "" if something was.
    """

    kernel: str
    cases: int = 0
    structures: int = 0
    findings: tuple[dict[str, Any], ...] = ()
    error: str = ""


def bound() -> dict[str, Bound]:
    """Return the packages that have bindings, by name.

    They are read off the text: no package need be importable in this process.
    """
    return {
        one.package: one for one in map(_bound, sorted(PACKAGES.glob("*.py"))) if one
    }


def _bound(path: Path) -> Bound | None:
    constants: dict[str, Any] = {}
    kernels = []
    for node in (tree := ast.parse(path.read_text())).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if name.isupper():
                try:
                    constants[name] = ast.literal_eval(value)
                except ValueError:  # not one of ours
                    continue
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=own, decorator_list=calls):
                kernels += [n for call in calls if _binds(call) for n in _of(call, own)]
            case ast.Call(func=call, args=[function, *_]) if _binds(call):
                kernels += _of(call, ast.unparse(function).rpartition(".")[2])
    if "PACKAGE" not in constants:
        return None
    needs = tuple(constants.get("NEEDS", ()))
    version = constants["VERSION"]
    return Bound(path, constants["PACKAGE"], version, needs, tuple(kernels))


def _binds(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "kfuzz.kernel"


def _of(call: ast.expr, own: str) -> list[str]:
    """The name of a function that is bound, and its gradient's."""
    given = {word.arg: word.value for word in getattr(call, "keywords", ())}
    match given.get("name"):
        case ast.Constant(value=str(own)):
            pass
    return [own, f"{own}.backward"] if "gradients" in given else [own]


def judgements() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return what findings were judged as, and why, by package, kernel and contract."""
    found = {}
    for line in JUDGED.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5:
            package, kernel, contract, judged, why = cells
            found[package, kernel, contract] = (judged, why)
    return found


def search(
    one: Bound,
    version: str,
    device: str,
    seconds: float,
    keep: Path,
    name: str,
    *,
    repair: bool = False,
) -> Searched:
    """Search one kernel in one release, as users do: by `kfuzz run`.

    Args:
        one: the package.
        version: the release.
        device: of `kfuzz run`.
        seconds: of the search.
        keep: the folder of wheels; findings are kept beside them.
        name: of the kernel.
        repair: whether patches are looked for.
    """
    place = keep / "hunted" / f"{one.package}-{version}" / name
    place.mkdir(parents=True, exist_ok=True)
    own = f"::{name}"
    command = ["run", f"{one.path}{own}", "--device", device, "--seed", "1"]
    seconds *= 1 + (f"{name}.backward" in one.kernels)  # which is searched beside it
    command += ["--max-time", f"{seconds:g}s", "--locate"]
    document = _asked(one, version, keep, place, command, seconds)
    if isinstance(document, str):
        return Searched(name, error=document)
    kernel = next((k for k in document["kernels"] if k["kernel"].endswith(own)), None)
    if kernel is None:
        return Searched(name, error="nothing was searched")
    for finding in kernel["findings"] if repair else ():
        asked = ["repair", finding["id"], "--max-time", "10s", "--device", device]
        asked += ["--target", str(one.path)]  # outside that project
        made = _asked(one, version, keep, place, asked, 120.0)
        if isinstance(made, dict):
            finding |= {"line": made["line"], "patches": made["patches"]}
    known = judgements()
    before = _before(one, version, keep, place, device)
    findings = [
        {
            **finding,
            "judged": known.get((one.package, name, finding["contract"]), (UNJUDGED,))[
                0
            ],
            "before": before.get(finding["id"], "not compared"),
        }
        for finding in kernel["findings"]
    ]
    cases, structures = kernel["cases"] or 0, kernel.get("structures") or 0
    return Searched(name, cases, structures, tuple(findings))


def _before(
    one: Bound, version: str, keep: Path, place: Path, device: str
) -> dict[str, str]:
    """What the release before does with each finding, by its id."""
    if not any((place / "corpus").rglob("finding.json")):
        return {}
    try:
        older = wheels.before(one.package, version)
    except wheels.WheelError:  # the index is out of reach
        return {}
    if older is None:
        return {}
    command = ["replay", "--device", device, "--fail-on", "any"]
    command += ["--target", f"{one.path}::{place.name}"]  # outside that project
    document = _asked(one, older, keep, place, command, 60.0)
    if isinstance(document, str):
        return {}
    words = {"FAILS": f"in {older}, too", "FIXED": f"new since {older}"}
    return {
        result["id"]: words.get(
            result["outcome"], f"{older}: {(result['message'] or 'not judged')[-80:]}"
        )
        for result in document["results"]
    }


def _asked(
    one: Bound, version: str, keep: Path, place: Path, words: list[str], seconds: float
) -> dict[str, Any] | str:
    """Return the document of a command of kfuzz, or why there is none."""
    try:
        path = [wheels.install(keep, one.package, version)]
        path += [wheels.needed(keep, need, need) for need in one.needs]
    except wheels.WheelError as error:
        return str(error)
    beside = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, path), *beside]),
        "KFUZZ_CACHE": str(place / "cache"),
    }
    command = [sys.executable, "-m", "kfuzz", *words, "--format", "json"]
    command += ["--corpus", str(place / "corpus")]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True,
            timeout=seconds + GRACE_SECONDS, check=False,
        )  # fmt: skip
        document: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"still there after {seconds:g} s and more"
    except ValueError:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    return document


def chosen(one: Bound, globs: list[str]) -> list[str]:
    """Return the kernels whose names match."""
    return [n for n in one.kernels if any(fnmatch.fnmatch(n, g) for g in globs)]


def rows(found: Searched) -> Iterator[tuple[str, ...]]:
    """Yield a row for what the search came to, then one for each finding."""
    numbers = (f"{found.cases:,}", f"{found.structures:,}")
    if not found.findings:
        yield (found.kernel, *numbers, found.error, "", "", "")
    for finding in found.findings:
        line = finding["line"] or {}
        place = f"{Path(line['file']).name}:{line['line']}" if line else ""
        patch = ", patch" if finding["patches"] else ""
        said = f"{finding['contract']}: {finding['message']}"
        judged = (finding["judged"], finding["before"])
        yield (found.kernel, *numbers, said, place + patch, *judged)
