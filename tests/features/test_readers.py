"""Every reader of a file refuses what is wrong with it in a sentence, at once.

A file that kfuzz writes is changed as its structure suggests: fields go, are doubled or
take values of others, or of another kind; numbers leave their range, texts bear control
characters, lists and nesting grow; then bytes are cut, flipped and repeated.

A reader returns, or raises a `KfuzzError`; what it returns is used as commands do. It
takes less than two seconds of the processor and writes nothing.
`KFUZZ_INPUTS=100000 pytest -m slow tests/features/test_readers.py` tries so many.
"""

import ast
import base64
import json
import os
import re
import resource
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kfuzz.cli.project import Effective, read_config
from kfuzz.core.codec import encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import KernelProof, Proven, ProvenProperty
from kfuzz.core.finding import Finding, Fingerprint
from kfuzz.core.verdict import Soundness
from kfuzz.cuda.code import kernels, prototype
from kfuzz.features.judge.adapters import flashinfer
from kfuzz.features.judge.adapters.kernelbot import task_of
from kfuzz.features.lab.grade.statement import (
    Calibration,
    ContractCalibration,
    read_calibration,
    read_statement,
)
from kfuzz.features.lab.grade.statement_text import (
    statement_document,
    statement_page,
)
from kfuzz.features.lab.record.comparing import compare, lines
from kfuzz.features.lab.record.recording import (
    HEADER,
    Entry,
    Header,
    Recorded,
    Result,
    path_of,
    read,
)
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.promises import proof_lines
from kfuzz.report.tables import Gathered, Shown, headline
from kfuzz.report.text import event_line, read_events
from kfuzz.store import files as strict_json
from kfuzz.store.corpus import (
    FINDING,
    FIRST,
    INPUTS,
    Corpus,
    files_of,
    read_entry,
)
from kfuzz.store.files import (
    keep_proof,
    kept_proof,
    read_source,
)
from kfuzz.store.mirror import Mirror, Version
from kfuzz.targets.load import mentions
from tests.features.judge.test_adapters import DEFINITION, TASK, WORKLOAD, solution
from tests.helpers.events import campaign
from tests.helpers.findings import finding
from tests.helpers.statements import kernel, statement

TRIES: Final = int(os.environ.get("KFUZZ_INPUTS", "1000"))
SECONDS: Final = 2
# Bytes of address space: what would take the machine's memory fails here.
MEMORY: Final = 8 << 30
Below = Callable[[int], int]
_KERNEL: Final = "kernel.json"
_DIGITS: Final = re.compile(r"\d+|'[^']*'")
_ATOMS: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "nan", "-inf", "0x7fc00000", "x" * 5000, "\x1b[31m",
    "\ud800", "\u202e", "../../etc/passwd", "/dev/zero", "K-VAL-01", "float32", "AAAA",
    "1h", "cpu", "aten::x", [], {}, [[]], [1], {"": None}, {"format": 1},
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """One reader.

    Attributes:
        name: its name in the table.
        files: makes what it reads, the file to be changed first; by name.
        read: reads it, and uses what it gives.
    """

    name: str
    files: Callable[[], dict[str, bytes]]
    read: Callable[[Path], object]


def _entry(changed: str) -> Callable[[], dict[str, bytes]]:
    def files() -> dict[str, bytes]:
        made = files_of(finding(n=300 if changed == INPUTS else 3))
        if changed == INPUTS:  # else its hash is all that is looked at
            document = json.loads(made[FINDING])
            del document["inputs"]
            made[FINDING] = json.dumps(document).encode()
        return {changed: made.pop(changed), **made}

    return files


def _use_entry(path: Path) -> None:
    _show(read_entry(path.parent))


def _show(made: Finding) -> None:
    encode(made)
    finding_lines(view(Shown(made.target.node_id, made, made.id)))


def _graded() -> dict[str, bytes]:
    return _document("statement", statement(kernel()))


def _statement(path: Path) -> None:
    made = read_statement(path)
    statement_page(made)
    statement_page(made, markdown=True)
    statement_document(made)


def _calibration() -> dict[str, bytes]:
    one = ContractCalibration("K-VAL-01/relu", Soundness.SOUND, ("a",), ("b",))
    made = Calibration(7, 400, 100, "cpu", Fingerprint(), (one,), ())
    return _document("calibration", made)


def _document(name: str, value: Any) -> dict[str, bytes]:
    return {"file.json": json.dumps({"format": 1, name: encode(value)}).encode()}


def _events() -> dict[str, bytes]:
    return {"run.jsonl": "".join(map(event_line, campaign(finding()))).encode()}


def _use_events(path: Path) -> None:
    run = Gathered()
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for event in read_events(lines, where="run"):
            run.feed(event)
    headline(run)
    for shown in run.findings:
        finding_lines(view(shown))


PROJECT: Final = b"""
[project]
name = "kernels"
version = "1.0"
[tool.kfuzz]
targets = ["kernels.py", "package.module"]
max-time = "10m"
max-cases = 100
seed = 7
device = "cpu"
report = { html = "report.html" }
contracts = ["C-*"]
[tool.kfuzz.profiles.night]
max-time = "1h"
"""


def _project(path: Path) -> None:
    Effective({}, read_config(path.parent), {})


def _recording(changed: str) -> Callable[[], dict[str, bytes]]:
    """Return what makes a recording of which the header or its kernel is changed."""

    def files() -> dict[str, bytes]:
        y = Result("y", "float32", (3,), "ab", "cd", "ef", {"nan": 1}, allowed="12")
        entry = Entry("ab" * 16, finding(n=3).case, "cd", 1, "allowed", results=(y,))
        one = Recorded("mine", "relu", {"a": "b"}, (entry,), {"order/float32/16": "x"})
        header = Header("cpu", Fingerprint(), 7, 1, ("kernels.py",))
        made = {
            HEADER: _document("header", header)["file.json"],
            _KERNEL: _document("kernel", one)["file.json"],
        }
        return {changed: made.pop(changed), **made}

    return files


def _use_recording(path: Path) -> None:
    packed = path_of(path.parent, "relu", "mine")
    packed.write_bytes(zlib.compress(path.with_name(_KERNEL).read_bytes()))
    made = compare([read(path.parent)] * 2)
    lines(made)


PROOF: Final = KernelProof(
    "k.py::copy",
    (ProvenProperty("loads in bounds", Proven.REFUTED, "n may be 0", 5, finding="c"),),
    {"copy": ("grid.0 = cdiv(n, BLOCK)",)},
)


def _proof(path: Path) -> None:
    keep_proof(path.parent, PROOF)
    (place,) = path.parent.glob(".proofs/*")
    place.write_bytes(path.read_bytes())
    proof = kept_proof(path.parent, PROOF.kernel)
    if proof is not None:
        list(proof_lines(proof, premises=True))


def _posed() -> dict[str, bytes]:
    others = dict.fromkeys(("reference.py", "task.py", "utils.py"), b"x = 1\n")
    return {"task.yml": TASK.replace("../", "").encode(), **others}


def _defined() -> dict[str, bytes]:
    document = {
        "definition": DEFINITION,
        "workload": WORKLOAD,
        "solution": solution("", into=True),
    }
    return {"definition.json": json.dumps(document).encode()}


def _definition(path: Path) -> None:
    document = strict_json.loads(path.read_bytes())
    parts = document if isinstance(document, dict) else {}
    definition, workload = parts.get("definition"), parts.get("workload")
    flashinfer.task_of(definition, workload)
    ast.parse(flashinfer.candidate_of(definition, parts.get("solution")))


def _version() -> dict[str, bytes]:
    coded = {n: base64.b64encode(c).decode() for n, c in files_of(finding(n=3)).items()}
    version = encode(Version("k/e", ("ab" * 32,), coded))
    return {"version.json": json.dumps({"format": 1, **version}).encode()}


def _use_version(path: Path) -> None:
    (path.parent / "url").write_text("memory://corpus")
    mirror = Mirror(Corpus(path.parent / "findings"))
    _, made, *_ = mirror._read("k/e", path.read_bytes())
    if made is not None:
        _show(made)


CUDA: Final = b"""
// __global__ void no(int)
typedef float real;
template <typename T>
__global__ void __launch_bounds__(256) softmax(const T* __restrict__ x, T *y, int n) {
  y[0] = "/* } */"[0];
}
extern "C" __global__ void relu(const real *x, unsigned long long n, float (*f)[4]) {}
"""


def _cuda(path: Path) -> None:
    text = read_source(path)
    for name in kernels(text)[:2]:
        prototype(text, name)


SOURCE: Final = b"""
import kfuzz as kf
@kf.kernel(ops.relu, name="other")
def named(x): ...
bound = kf.kernel(ops.relu)(kf.launch(named))
"""

READERS: Final = (
    Reader("finding.json", _entry(FINDING), _use_entry),
    Reader("inputs.safetensors", _entry(INPUTS), _use_entry),
    Reader("first.json", _entry(FIRST), _use_entry),
    Reader("a statement", _graded, _statement),
    Reader("a calibration", _calibration, lambda p: encode(read_calibration(p))),
    Reader("a recording", _recording(HEADER), _use_recording),
    Reader("a recorded kernel", _recording(_KERNEL), _use_recording),
    Reader("events of a run", _events, _use_events),
    Reader("pyproject.toml", lambda: {"pyproject.toml": PROJECT}, _project),
    Reader("a proof", lambda: _document("proof", PROOF), _proof),
    Reader("task.yml", _posed, lambda p: ast.parse(task_of(p.parent).reference)),
    Reader("a definition", _defined, _definition),
    Reader("a corpus's version", _version, _use_version),
    Reader("a CUDA source", lambda: {"kernels.cu": CUDA}, _cuda),
    Reader("a source", lambda: {"kernels.py": SOURCE}, lambda p: mentions(p, "named")),
)  # fmt: skip


def changed(content: bytes, below: Below) -> bytes:
    """Return a file changed in its structure, in its bytes, or in both."""
    kind = below(8)
    if kind:
        content = _restructured(content, below)
    if kind in (0, 1):
        for _ in range(1 + below(3)):
            content = _bytes_changed(content, below)
    return content


def _restructured(content: bytes, below: Below) -> bytes:
    """Return JSON, or the lines of another text, with parts changed."""
    lines = content.split(b"\n")
    where = below(len(lines))
    try:
        whole = json.loads(content)
    except ValueError:
        whole = None
    if whole is not None:
        return _written(_tree_changed(whole, below))
    try:
        part = json.loads(lines[where])
    except ValueError:
        return _line_changed(lines, where, below)
    lines[where] = _written(_tree_changed(part, below))
    return b"\n".join(lines)


def _line_changed(lines: list[bytes], where: int, below: Below) -> bytes:
    """Return a text of keys and values with one line changed."""
    key, equals, _ = lines[where].partition(b"=")
    match below(5):
        case 0:
            del lines[where]
        case 1:
            lines.insert(where, lines[below(len(lines))])
        case 2:
            lines[where] = lines[where] * (1 + below(300))
        case _:
            atom = deepcopy(_ATOMS[below(len(_ATOMS))])
            lines[where] = key + (equals or b" = ") + _written(atom)
    return b"\n".join(lines)


def _written(value: Any) -> bytes:
    try:
        return json.dumps(value).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return b"[" * 100_000


def _tree_changed(tree: Any, below: Below) -> Any:
    for _ in range(1 + below(3)):
        places = list(_places(tree))
        if not places:
            return deepcopy(_ATOMS[below(len(_ATOMS))])
        owner, key = places[below(len(places))]
        other_owner, other = places[below(len(places))]
        match below(10):
            case 0:
                del owner[key]
            case 1:
                owner[key] = json.loads(json.dumps(other_owner[other]))
            case 2 if isinstance(owner, dict):
                owner[f"{key}x"] = owner[key]
            case 3 if isinstance(owner, list):
                owner.extend([owner[key]] * (1 + below(200)))
            case 4:
                for _ in range(1 + below(60)):
                    owner[key] = [owner[key]]
            case 5 if isinstance(owner[key], int | float):
                owner[key] = -owner[key] - 1
            case 6 if isinstance(owner[key], str):
                text = owner[key]
                at = below(len(text) + 1)
                owner[key] = text[:at] + chr(below(0xD7FF)) + text[at:]
            case _:
                owner[key] = deepcopy(_ATOMS[below(len(_ATOMS))])
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(tree, dict | list):
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        yield from _places(value)


def _bytes_changed(content: bytes, below: Below) -> bytes:
    at = below(len(content) + 1)
    match below(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([below(256)]) + content[at + 1 :]
        case 2:
            end = at + below(64)
            return content[:at] + content[at:end] * below(500) + content[at:]
        case _:
            return content[:at] + content[at + below(64) :]


class Overdue(BaseException):
    """A reader took too long."""


WROTE: list[str] = []
CHANGES: Final = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link",
    "os.system", "subprocess.Popen",
)  # fmt: skip


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what is written outside of a folder while a reader reads."""
    what = ""
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            what = str(path)
    elif event in CHANGES:
        what, folder = f"{event} {arguments[0]!r}", arguments[-1]
        if isinstance(folder, int) and folder >= 0:  # the name is below it
            what += " in " + os.readlink(f"/proc/self/fd/{folder}")
    if what and HELD.get("reading", what) not in what:
        WROTE.append(what)


HELD: dict[str, str] = {}


@pytest.fixture(scope="module")
def watched() -> Iterator[None]:
    """Note what is written, end what takes too long, and have memory end."""

    def over(number: int, frame: FrameType | None) -> None:
        raise Overdue

    sys.addaudithook(audit)
    before = signal.signal(signal.SIGVTALRM, over)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
def test_no_reader_raises_hangs_or_writes(reader: Reader, tmp_path: Path) -> None:
    target, content = next(iter(reader.files().items()))
    for name, held in reader.files().items():
        (tmp_path / name).write_bytes(held)
    taken, told = 0, set[str]()

    @settings(
        max_examples=TRIES, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def tried(data: st.DataObject) -> None:
        nonlocal taken

        def below(limit: int) -> int:
            return data.draw(st.integers(0, limit - 1))

        (tmp_path / target).write_bytes(changed(content, below))
        WROTE.clear()
        HELD["reading"] = str(tmp_path)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            reader.read(tmp_path / target)
            taken += 1
        except KfuzzError as error:
            told.add(_DIGITS.sub("", str(error)))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            HELD.clear()
        assert not WROTE

    tried()
    # What is changed is taken at times, and reaches further than the first check.
    assert taken + len(told) > 2
