"""What a judged child can see of who judges it, and of what it is judged by."""

import secrets
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.sandbox import contain
from kfuzz.features.judge.sandbox.sandbox import Sandbox, zygote_for
from kfuzz.features.judge.sandbox.wire import Entry
from kfuzz.features.judge.service import worker as service
from tests.features.judge.judging import problem

WAYS = {"all": contain.WAYS, "landlock": ("landlock",)}

LOOKING = '''
import gc
import inspect
import linecache
import os
import subprocess
import sys

import torch


def seen():
    """Yield where the word stands that a child must not meet."""
    places = {
        "modules": [*sys.modules, *map(repr, list(sys.modules.values()))],
        "arguments": [*sys.argv, *sys.orig_argv],
        "environment": [k + v for k, v in os.environ.items()],
        "path": [*sys.path, *sys.path_importer_cache],
        "files": [*linecache.cache, *inspect.modulesbyfile, *inspect._filesbymodname],
        "finders": [repr(f) for f in (*sys.meta_path, *sys.path_hooks)],
        "process": [open(f"/proc/self/{n}").read() for n in ("cmdline", "comm")],
        "folder": [os.getcwd(), __name__],
        "open files": [
            os.readlink(f"/proc/self/fd/{n}")
            for n in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{n}")
        ],
        "objects": [
            text
            for held in gc.get_objects()
            if isinstance(held, dict | list)
            for text in list(held.values() if isinstance(held, dict) else held)
            if type(text) is str
        ],
        "frames": [],
    }
    if sys.flags.safe_path:
        yield "flags: safe_path"
    for frame in (sys._getframe(), *sys._current_frames().values()):
        while frame is not None:
            code, space = frame.f_code, frame.f_globals
            places["frames"] += [code.co_filename, code.co_qualname, code.co_name]
            places["frames"] += [str(space.get(n)) for n in ("__name__", "__file__")]
            assert space.get("__loader__") is None or not code.co_filename[0].isalpha()
            frame = frame.f_back
    for place, texts in places.items():
        for text in texts:
            if "kfuzz" in text.replace(os.path.dirname(__file__), ""):
                yield f"{place}: {text[:100]}"


def looks(x):
    found = list(seen())
    if found:
        raise RuntimeError(str(found))
    return torch.relu(x)


def reads(x):
    """Return how many bytes it can read of what it is not to see."""
    here = os.path.dirname(os.path.abspath(__file__))
    total = 0
    for name in ("reference.py", "corpus/finding.json"):
        try:
            with open(os.path.join(here, name), "rb") as file:
                total += len(file.read())
        except OSError:
            pass
    with open(__file__, "rb") as file:
        assert file.read()
    with open(os.path.join(here, "beside.py"), "rb") as file:
        assert file.read()
    return torch.full_like(x, total)


def changes_settings(x):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    return torch.relu(x)


def tells_settings(x):
    return torch.full_like(x, torch.get_num_threads())


def starts(x):
    """Start a program as Triton starts a C compiler: by what it inherits."""
    told = subprocess.run(
        ["/bin/sh", "-c", 'printf "%s %s" "$PATH" "$TMPDIR"'],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout
    assert told == os.environ["PATH"] + " " + os.environ["TMPDIR"], told
    return torch.relu(x)
'''


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """From an environment whose path names kfuzz, as in a checkout of that name."""
    prefix = tmp_path_factory.mktemp("kfuzz") / "env"
    prefix.symlink_to(sys.prefix)
    python = prefix / Path(sys.executable).relative_to(sys.prefix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "prefix", str(prefix))
        patch.setattr(sys, "executable", str(python))
        made = zygote_for("cpu", output=lambda piece: None)
    with made as zygote:
        yield zygote


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "solution.py"
    made.write_text(LOOKING)
    (tmp_path / "beside.py").write_text("helps = 1\n")
    (tmp_path / "reference.py").write_text("class Model: ...\n")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "finding.json").write_text("{}")
    return made


@pytest.mark.parametrize("way", WAYS)
def test_nothing_in_a_child_names_who_judges_it(
    zygote: Zygote, file: Path, way: str
) -> None:
    entry = Entry(file, "looks")
    with Sandbox(entry, device="cpu", ways=WAYS[way], zygote=zygote) as box:
        called = box.call([torch.ones(3)])
    assert called.returned is not None, called.raised or called.ended


@pytest.mark.parametrize("way", WAYS)
def test_reference_and_corpus_cannot_be_read(
    zygote: Zygote, file: Path, way: str
) -> None:
    hidden = [file.with_name("reference.py"), file.with_name("corpus")]
    entry = Entry(file, "reads")
    with Sandbox(
        entry, device="cpu", ways=WAYS[way], zygote=zygote, hidden=hidden
    ) as box:
        called = box.call([torch.ones(3)])
        told = box.containment["reading"].text
    assert called.returned is not None, called.raised or called.ended
    if "but the reference" in told:  # else the system has no means for it
        assert not called.returned.value.any()


def test_settings_of_torch_are_put_back_and_told(zygote: Zygote, file: Path) -> None:
    with Sandbox(Entry(file, "changes_settings"), device="cpu", zygote=zygote) as box:
        for _ in range(2):
            called = box.call([torch.ones(3)])
            assert called.returned is not None
            assert called.returned.value.dtype is torch.float32
            told = " ".join(called.returned.words["left"])
            for name in ("default dtype", "number of threads", "deterministic"):
                assert name in told


def test_what_a_child_starts_inherits_its_environment(
    zygote: Zygote, file: Path
) -> None:
    with Sandbox(Entry(file, "starts"), device="cpu", zygote=zygote) as box:
        called = box.call([torch.ones(3)])
    assert called.returned is not None, called.raised or called.ended


SEARCHING = '''
import gc
import os
import sys
import torch

MARK = "".join({mark!r})


def held(path):
    """Whether a file, or what a process maps, holds the mark."""
    try:
        if not path.endswith("/mem"):
            return MARK.encode() in open(path, "rb").read(1 << 22)
        with open(path, "rb", buffering=0) as memory:
            for line in open(path.replace("/mem", "/maps")):
                start, end = (int(n, 16) for n in line.split()[0].split("-"))
                if " rw" not in line or end - start > 1 << 26:
                    continue
                memory.seek(start)
                if MARK.encode() in memory.read(end - start):
                    return True
    except (OSError, ValueError):
        pass
    return False


def ancestors():
    pid = os.getppid()
    while pid > 1:
        yield pid
        status = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()
        pid = int(status[1])


def found():
    own = os.path.abspath(__file__)
    for root in ({root!r}, "/dev/shm"):
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if path != own and os.path.isfile(path) and held(path):
                    return path
    for pid in ancestors():
        for name in ("cmdline", "environ", "mem"):
            if held(f"/proc/{{pid}}/{{name}}"):
                return f"/proc/{{pid}}/{{name}}"
    whole = MARK
    for value in gc.get_objects():
        if isinstance(value, dict) and value is not globals():
            for text in list(value.values()):
                if isinstance(text, str) and whole in text and text is not whole:
                    return "an object"
    for frame in sys._current_frames().values():
        while frame is not None:
            if any(isinstance(v, str) and whole in v and v is not whole
                   for v in frame.f_locals.values()):
                return f"a frame of {{frame.f_code.co_name}}"
            frame = frame.f_back
    return ""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        where = found()
        if where:
            raise RuntimeError(f"found in {{where}}")
        return torch.relu(x)
'''


@pytest.mark.slow
def test_a_text_that_is_judged_on_lies_nowhere(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no means to hide a file, that is all there is."""
    monkeypatch.setattr(service, "Sandbox", partial(Sandbox, ways=()))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mark = secrets.token_hex()
    homes = [tmp_path / name for name in ("home", "private")]
    for home in homes:
        home.mkdir()
    monkeypatch.setattr(service, "zygote_for", lambda name, output: zygote)
    worker = service.Worker()
    worker({
        "do": "begin", "device": "cpu", "place": 0, "jobs": 1, "corpus": "",
        "home": str(homes[0]), "private": str(homes[1]), "benchmarked_only": True,
        "limits": {},
    })  # fmt: skip
    forward = "assert 'relu(x)' in inspect.getsource(Model); return torch.relu(x)"
    reference = f"import inspect\nMARK = {mark!r}\n"
    reference += problem(forward, "torch.randn(6, 9)")
    worker({"do": "open", "reference": reference})
    asked = {
        "do": "judge", "claims": {}, "max_time": 20, "max_cases": 3,
        "seed": 1, "explain": False,
    }  # fmt: skip
    looking = SEARCHING.format(mark=list(mark), root=str(tmp_path))
    answer = worker({**asked, "candidate": looking})
    assert "found in" not in answer["reason"]
    assert answer["verdict"] == "conforms", answer
    # It would have been found.
    (tmp_path / "left.txt").write_text(reference)
    assert "left.txt" in worker({**asked, "candidate": looking})["reason"]
