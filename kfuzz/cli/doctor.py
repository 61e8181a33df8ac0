"""kfuzz doctor: what works here, and the way out where something does not."""

import os
import platform
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kfuzz.cli.project import open_project
from kfuzz.cli.settings import CorpusOption
from kfuzz.cli.streams import ExitCode, report_stream
from kfuzz.core.errors import KfuzzError
from kfuzz.core.features import needed
from kfuzz.core.finding import version_of
from kfuzz.execution.processes.child import Zygote
from kfuzz.execution.processes.wire import ChildDied, Handler, Message
from kfuzz.report.text import one_line, shown_path
from kfuzz.store.corpus import Corpus

# Importing torch from a cold disk takes tens of seconds.
_PATIENCE_SECONDS: Final = 120.0
_PACKAGES: Final = ("torch", "triton", "numpy", "hypothesis", "ml_dtypes")


class Health(StrEnum):
    """What is known about one thing that kfuzz needs."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


class Check(NamedTuple):
    """One line of the report.

    Attributes:
        name: what was looked at.
        health: how it is.
        text: version or fault.
        fix: the way out, "" where none is needed.
    """

    name: str
    health: Health
    text: str
    fix: str = ""


def doctor(corpus: CorpusOption = None) -> int:
    """Check what kfuzz needs on this machine; exit 5 if no kernel can run."""
    width = max(map(len, Health))
    runs = False
    with report_stream() as out:
        for check in _checks(corpus):
            runs |= check.name == _CHILD and check.health is Health.OK
            fix = f". {check.fix}" if check.fix else ""
            text = one_line(f"{check.name}: {check.text}{fix}")
            print(f"{check.health:<{width}}  {text}", file=out, flush=True)
    return ExitCode.OK if runs else ExitCode.NO_BACKEND


# The names under which a child tries something, and the way out where that fails.
_CHILD: Final = "child process"
_FIXES: Final = {
    _CHILD: "run under Linux, with memory to spare and processes allowed",
    "guard pages": "loads outside arguments of native code go undetected",
    "cuda": "with a GPU, install its driver and a CUDA build of torch",
    "guard pages on cuda": "loads outside arguments on a GPU go undetected",
    "triton interpreter": "install versions of triton and numpy that fit together",
}


def _checks(corpus: str | None) -> Iterator[Check]:
    yield Check("python", Health.OK, platform.python_version())
    yield Check("platform", Health.OK, f"{platform.system()} {platform.machine()}")
    for package in _PACKAGES:
        if version := version_of(package):
            yield Check(package, Health.OK, version)
        else:
            fix = f"pip install {package}"
            yield Check(package, Health.MISSING, "not installed", fix)
    if version_of("torch"):
        yield from _in_children()
    else:
        yield Check(_CHILD, Health.MISSING, "needs torch")
    yield _corpus(corpus)


def _in_children() -> Iterator[Check]:
    """Yield what a forked child can do: answer, see devices, guard memory."""
    printed = b""

    def keep(piece: bytes) -> None:
        nonlocal printed
        printed += piece

    serve = "kfuzz.cli.doctor:serve"
    with Zygote(serve, env=os.environ, preload=["torch"], output=keep) as zygote:

        def ask(name: str) -> Check:
            fix = _FIXES[name]
            try:
                with zygote.fork() as child:
                    found = child.request({"do": name}, _PATIENCE_SECONDS)
            except KfuzzError as error:
                match name, error:
                    case "guard pages", ChildDied(faulted=True):
                        return Check(name, Health.OK, "a load past the end faults")
                    case "guard pages on cuda", ChildDied():
                        fix = "such faults are K-LIV-01"
                tail = printed.decode(errors="replace").strip().rpartition("\n")[2]
                text = f"{error}; {tail}" if tail else str(error)
                return Check(name, Health.BROKEN, text, fix)
            health = Health(found["health"])
            fix = "" if health is Health.OK else fix
            return Check(name, health, found["text"], fix)

        yield ask(_CHILD)
        yield ask("guard pages")
        yield (cuda := ask("cuda"))
        if cuda.health is Health.OK:
            yield ask("guard pages on cuda")
        yield _containment("cuda:0" if cuda.health is Health.OK else "cpu")
        if version_of("triton"):
            yield ask("triton interpreter")


def _containment(device: str) -> Check:
    """Contain a child that imports nothing foreign, and see what holds."""
    name, fix = "untrusted code", "run `kfuzz judge` in a container or virtual machine"
    try:
        with needed("sandbox", name)(None, device=device) as sandbox:
            measures = sandbox.containment.values()
            always = sandbox.always_open
    except KfuzzError as error:
        return Check(name, Health.BROKEN, str(error), "`kfuzz judge` needs a child")
    kept = ", ".join(m.name for m in measures if m.held)
    open_here = [m for m in measures if not m.held and m.name not in always]
    if not open_here:
        return Check(name, Health.OK, f"contained: {kept}")
    texts = "; ".join(f"{m.name}: {m.text}" for m in open_here)
    text = f"contained: {kept}. Not contained: {texts}"
    return Check(name, Health.MISSING, text, fix)


def _corpus(option: str | None) -> Check:
    try:
        project = open_project(option)
        Corpus(project.corpus).require_writable()
    except KfuzzError as error:
        return Check("corpus", Health.BROKEN, str(error))
    place = project.place
    shown = place if isinstance(place, str) else shown_path(place)
    return Check("corpus", Health.OK, f"{shown} can be written")


# What a child tries: torch, devices, pages that fault, Triton. An answer is what the
# report prints.

# Two programs, the second one partly masked.
_ELEMENTS: Final = 7
_BLOCK: Final = 4


def serve() -> Handler:
    """Return the handler of a child: it tries what a request names."""
    return lambda message: _TRIED[message["do"]]()


def _answer(health: str, text: str) -> Message:
    return {"health": health, "text": text}


def _torch() -> Message:
    import torch

    torch.ones(_ELEMENTS).sum()
    return _answer("ok", "forked, runs torch and answers")


def _devices() -> Message:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        return _answer("ok", ", ".join(map(torch.cuda.get_device_name, range(count))))
    return _answer("missing", "no device: Triton kernels run in the interpreter")


def _load_past_the_end() -> Message:
    """Load past the end of an argument beside a page, which should end the process."""
    import ctypes
    import faulthandler

    import torch

    from kfuzz.core.recipe import Edge, Fill, TensorSpec
    from kfuzz.execution.memory import fences as pages
    from kfuzz.execution.memory.placement import place
    from kfuzz.execution.memory.poison import Poison

    if not pages.available():
        return _answer("missing", "this system makes no pages that fault")
    faulthandler.disable()  # a stack would look like a fault of kfuzz's
    spec = TensorSpec((_BLOCK,), ("N",), "float32", fill=Fill("zeros"))
    placed = place(
        {"x": spec}, {"x": torch.zeros(_BLOCK)}, device=torch.device("cpu"),
        alignment=16, poison=Poison.NAN, edge=Edge("end"),
    )  # fmt: skip
    x = placed.tensors["x"]
    ctypes.string_at(x.data_ptr() + x.nbytes, 1)
    return _answer("broken", "a load past the end did not fault")


def _load_past_the_end_on_a_gpu() -> Message:
    """Have the first GPU load past the end of an argument beside a page."""
    import torch

    from kfuzz.core.verdict import ILLEGAL_ADDRESS
    from kfuzz.execution.device.backends import GPU, load_past_the_end

    device = torch.device("cuda", 0)
    if unfenced := GPU.unfenced(device):
        return _answer("missing", unfenced)
    fault = load_past_the_end(device)
    if fault == ILLEGAL_ADDRESS:
        return _answer("ok", "a load past the end faults")
    seen = f"gave {fault}" if fault else "did not fault"
    return _answer("broken", f"a load past the end {seen}")


def _interpreted() -> Message:
    """Run a kernel in Triton's interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is made
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def add_one(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = index < n
        tl.store(y + index, tl.load(x + index, mask=mask) + 1.0, mask=mask)

    x = torch.arange(_ELEMENTS, dtype=torch.float32)
    y = torch.zeros(_ELEMENTS)
    programs = -(-_ELEMENTS // _BLOCK)
    kernel: Any = add_one
    kernel[(programs,)](x, y, _ELEMENTS, BLOCK=_BLOCK)
    if torch.equal(y, x + 1):
        return _answer("ok", "runs a kernel")
    return _answer("broken", f"a kernel that adds 1 gave {y.tolist()}")


_TRIED: Final[dict[str, Callable[[], Message]]] = {
    "child process": _torch,
    "guard pages": _load_past_the_end,
    "cuda": _devices,
    "guard pages on cuda": _load_past_the_end_on_a_gpu,
    "triton interpreter": _interpreted,
}
