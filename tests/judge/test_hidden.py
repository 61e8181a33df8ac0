"""What a judged child can see of who judges it, and of what it is judged by."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kfuzz.core.untrusted import Entry, Measures
from kfuzz.execution.processes import Zygote
from kfuzz.judge.sandbox import Sandbox, zygote_for

WAYS = {"all": Measures(), "landlock": Measures(namespaces=False)}

LOOKING = '''
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
        "path": sys.path,
        "finders": [repr(f) for f in (*sys.meta_path, *sys.path_hooks)],
        "process": [open(f"/proc/self/{n}").read() for n in ("cmdline", "comm")],
        "folder": [os.getcwd(), __name__],
        "open files": [
            os.readlink(f"/proc/self/fd/{n}")
            for n in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{n}")
        ],
        "frames": [],
    }
    for frame in (sys._getframe(), *sys._current_frames().values()):
        while frame is not None:
            code, space = frame.f_code, frame.f_globals
            places["frames"] += [code.co_filename, code.co_qualname, code.co_name]
            places["frames"] += [str(space.get(n)) for n in ("__name__", "__file__")]
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
def zygote() -> Iterator[Zygote]:
    with zygote_for("cpu", output=lambda piece: None) as zygote:
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
    with Sandbox(entry, device="cpu", measures=WAYS[way], zygote=zygote) as box:
        called = box.call([torch.ones(3)], {})
    assert called.returned is not None, called.raised or called.ended


@pytest.mark.parametrize("way", WAYS)
def test_reference_and_corpus_cannot_be_read(
    zygote: Zygote, file: Path, way: str
) -> None:
    hidden = [file.with_name("reference.py"), file.with_name("corpus")]
    entry = Entry(file, "reads")
    with Sandbox(
        entry, device="cpu", measures=WAYS[way], zygote=zygote, hidden=hidden
    ) as box:
        called = box.call([torch.ones(3)], {})
        told = box.containment["reading"].text
    assert called.returned is not None, called.raised or called.ended
    if "but the reference" in told:  # else the system has no means for it
        assert not called.returned.value.any()


def test_settings_of_torch_are_put_back_and_told(zygote: Zygote, file: Path) -> None:
    with Sandbox(Entry(file, "changes_settings"), device="cpu", zygote=zygote) as box:
        for _ in range(2):
            called = box.call([torch.ones(3)], {})
            assert called.returned is not None
            assert called.returned.tensors[0].dtype is torch.float32
            told = " ".join(called.returned.left)
            for name in ("default dtype", "number of threads", "deterministic"):
                assert name in told


def test_what_a_child_starts_inherits_its_environment(
    zygote: Zygote, file: Path
) -> None:
    with Sandbox(Entry(file, "starts"), device="cpu", zygote=zygote) as box:
        called = box.call([torch.ones(3)], {})
    assert called.returned is not None, called.raised or called.ended
