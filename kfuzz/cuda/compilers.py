"""Compilers of CUDA C++: NVRTC and nvcc, each from source to machine code."""

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.core.errors import BuildError, DecodeError, HarnessError
from kfuzz.store import files
from kfuzz.store.files import cache_folder, replace_file

LONGEST_SECONDS: Final = 110.0
"""What one build may take: less than a call in a child may."""

_FIX: Final = "pip install cuda-bindings of the CUDA version that torch was built for"

SHOWN_LINES: Final = 6
"""Lines of a compiler's messages that an error shows, from the first error on."""

_ERROR: Final = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*)[:(](?P<line>\d+)\)?(?::\d+)?\s*:\s*"
    r"(?:fatal |catastrophic )?error\b.*$",
    re.MULTILINE,
)
_ARCHITECTURE: Final = re.compile(r"^(-arch|--gpu-arch|-gencode|--generate-code)")


@dataclass(frozen=True)
class Unit:
    """What is compiled.

    Attributes:
        text: the source.
        file: its name in messages.
        folder: where its `#include "..."` are looked for; None where it has no file.
        options: for the compiler.
        expressions: functions that have no `extern "C"`, as C++ names them.
    """

    text: str
    file: str
    folder: Path | None = None
    options: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    """What it is compiled to.

    Attributes:
        code: machine code, as the driver loads it.
        names: what the functions asked for are called in it.
    """

    code: bytes
    names: Mapping[str, str] = field(default_factory=dict)


class Nvrtc:
    """NVRTC, in this process, through cuda-bindings: torch's wheels for CUDA bring it.

    Raises:
        HarnessError: where there is none.
    """

    name = "nvrtc"

    def __init__(self) -> None:
        self._bindings = bindings()

    def version(self) -> str:
        """Return for example "nvrtc 13.0 13.0.3", the last that of the bindings."""
        major, minor = self._call("nvrtcVersion")
        own = getattr(self._bindings, "__version__", "")
        return f"nvrtc {major}.{minor} {own}".strip()

    def build(self, unit: Unit, architecture: str) -> Binary:
        """Return machine code for one processor, "sm_90"; it needs no GPU."""
        own = () if says_architecture(unit.options) else (architecture,)
        folders = () if unit.folder is None else (unit.folder,)
        flags = [f"--gpu-architecture={a}" for a in own]
        flags += unit.options
        flags += [f"--include-path={f}" for f in (*folders, *toolkit_folders())]
        expressions = [e.encode() for e in unit.expressions]
        text, file = unit.text.encode(), unit.file.encode()
        [program] = self._call("nvrtcCreateProgram", text, file, 0, None, None)
        try:
            for each in expressions:
                self._call("nvrtcAddNameExpression", program, each)
            given = [flag.encode() for flag in flags]
            [said] = self._bindings.nvrtcCompileProgram(program, len(given), given)
            if int(said):
                log = self._read("ProgramLog", program).rstrip(b"\0")
                raise failure(self.name, log.decode(errors="replace"), unit)
            lowered = [
                self._call("nvrtcGetLoweredName", program, each)[0].decode()
                for each in expressions
            ]
            names = dict(zip(unit.expressions, lowered, strict=True))
            return Binary(self._read("CUBIN", program), names)
        finally:
            self._bindings.nvrtcDestroyProgram(program)

    def _call(self, name: str, *arguments: Any) -> list[Any]:
        """Return what a call gives, without its error."""
        try:
            answer: tuple[Any, ...] = getattr(self._bindings, name)(*arguments)
        except RuntimeError as failed:  # the bindings are there, the library is not
            raise HarnessError(f"NVRTC cannot be loaded: {failed}", fix=_FIX) from None
        error, *given = answer
        if int(error):
            raise HarnessError(f"{name} says {error.name}")
        return given

    def _read(self, what: str, program: Any) -> bytes:
        """Return the log or the code of a program."""
        [size] = self._call(f"nvrtcGet{what}Size", program)
        if size < 2:  # Python shares bytes of length 1: they must not be written to
            return b""
        found = bytes(size)
        self._call(f"nvrtcGet{what}", program, found)
        return found


@dataclass(frozen=True)
class Nvcc:
    """The toolkit's compiler, in a process of its own."""

    program: str

    def version(self) -> str:
        """Return what it prints of itself."""
        return _version(self.program)

    def build(self, unit: Unit, architecture: str) -> Binary:
        """Return machine code for one processor, "sm_90"."""
        own = () if says_architecture(unit.options) else (f"-arch={architecture}",)
        code = _run(self.program, unit, ("-cubin", *own))
        return Binary(code, {e: mangled(code, e, unit) for e in unit.expressions})


Compiler = Nvrtc | Nvcc


@cache
def bindings() -> Any:
    """Return cuda-bindings' module for NVRTC.

    Raises:
        HarnessError: where it is not installed, or torch is a build for AMD's GPUs.
    """
    if torch.version.hip is not None:
        raise HarnessError("CUDA C++ runs on NVIDIA GPUs alone, this torch is for AMD")
    try:
        # By name: type checkers run where there is no such package.
        return import_module("cuda.bindings.nvrtc")
    except ImportError:
        what = "CUDA C++ cannot be compiled: cuda-bindings are not installed"
        raise HarnessError(what, fix=_FIX) from None


def toolkit_folders() -> list[Path]:
    """Return the folders of the toolkit's headers, as far as they are found."""
    purelib = Path(sysconfig.get_path("purelib"))
    homes = [os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME")]
    folders = [Path(home) / "include" for home in homes if home]
    folders += purelib.glob("nvidia/cu*/include")
    folders.append(Path("/usr/local/cuda/include"))
    return [folder for folder in folders if (folder / "cuda_fp16.h").is_file()]


def chosen(name: str) -> list[Compiler]:
    """Return the compilers to try, in order.

    Args:
        name: "auto", "nvrtc" or "nvcc".

    Raises:
        BuildError: if none is there.
    """
    made: list[Compiler] = []
    missing = []
    if name in ("auto", "nvrtc"):
        try:
            able = Nvrtc()
            able.version()  # which needs the library
            made.append(able)
        except HarnessError as error:
            missing.append(str(error))
    if name in ("auto", "nvcc"):
        program = _found()
        if program is None:
            missing.append("there is no nvcc: install CUDA's, or set CUDA_HOME")
        else:
            made.append(Nvcc(program))
    if not made:
        raise BuildError("; ".join(missing))
    return made


def lacks_header(error: BuildError) -> bool:
    """Whether a build failed for want of a header: NVRTC has few of the host's."""
    return "could not open source file" in error.what or (
        "cannot open source file" in error.what
    )


def says_architecture(options: Sequence[str]) -> bool:
    """Whether options name the processor."""
    return any(_ARCHITECTURE.match(option) for option in options)


def failure(compiler: str, log: str, unit: Unit) -> BuildError:
    """Return a failed build with the compiler's own lines, the first error first."""
    met = _ERROR.search(log)
    where, shown = unit.file, log.strip()
    if met is not None:
        where, shown = f"{met['file']}:{met['line']}", log[met.start() :].strip()
    lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
    text = "\n".join(lines[:SHOWN_LINES]) or "it prints nothing"
    return BuildError(f"{compiler} cannot build it:\n{text}", where=where)


def mangled(code: bytes, expression: str, unit: Unit) -> str:
    """Return a function's name in machine code, by the rules of the Itanium C++ ABI.

    Raises:
        BuildError: if it has none there, or several of that name.
    """
    base, _, arguments = expression.partition("<")
    parts = [p for p in base.strip().split("::") if p]
    inner = "".join(f"{len(p)}{p}" for p in parts)
    start = f"_ZN{inner}" if len(parts) > 1 else f"_Z{inner}"
    pattern = re.escape(start.encode()) + (rb"I\w+" if arguments else rb"(?!I)\w+")
    sections: set[bytes] = set(re.findall(rb"\.text\.(" + pattern + rb")\0", code))
    if len(sections) == 1:
        return sections.pop().decode()
    what = f"{len(sections)} functions" if sections else "no function"
    raise BuildError(
        f"the machine code has {what} of the name {expression}",
        where=unit.file,
        fix='declare it extern "C" __global__, or use compiler="nvrtc"',
    )


def _run(program: str, unit: Unit, mode: Sequence[str]) -> bytes:
    """Run nvcc on a source and return the file that it writes."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-build-") as scratch:
        source, made = Path(scratch) / "kernel.cu", Path(scratch) / "kernel.cubin"
        # Errors name the user's file and line, and templates come to life.
        text = f'#line 1 "{unit.file}"\n{unit.text}\n'
        text += "".join(
            f"__attribute__((used)) static const void *kfuzz_{i} = "
            f"(const void *)&{e};\n"
            for i, e in enumerate(unit.expressions)
        )
        source.write_text(text)
        folders = () if unit.folder is None else (f"-I{unit.folder}",)
        command = [program, *mode, *unit.options, *folders]
        command += ["-o", str(made), str(source)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"nvcc takes more than {LONGEST_SECONDS:.0f} s"
            raise BuildError(what, where=unit.file) from None
        except OSError as error:
            what = f"nvcc cannot be run: {error}"
            raise BuildError(what, where=unit.file) from None
        if done.returncode or not made.is_file():
            log = done.stdout.decode(errors="replace").replace(str(source), unit.file)
            raise failure("nvcc", log, unit)
        return made.read_bytes()


def _found() -> str | None:
    """Return nvcc where an environment variable says, on the path, or in its place."""
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    folders = [f"{home}/bin" for home in homes if home]
    places = (*folders, os.environ.get("PATH", ""), "/usr/local/cuda/bin")
    return shutil.which("nvcc", path=os.pathsep.join(filter(None, places)))


@cache
def _version(program: str) -> str:
    try:
        printed = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{program} cannot be run: {error}") from None
    return f"{program} {printed.decode(errors='replace')}"


# Builds of CUDA C++, kept on disk by all that they depend on.
#
# An entry is whole or not there: it is written beside and moved, so that processes that
# build the same at once replace each other's equal files.

_FORMAT: Final = 1
_INCLUDE: Final = re.compile(
    r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(.*)$", re.MULTILINE
)
_NAMED: Final = re.compile(r'["<]([^">\n]+)[">]')
_FOLDERS: Final = ("-I", "--include-path=", "-isystem")
# What compilers read besides their command line.
_ENVIRONMENT: Final = (
    "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CPATH",
    "CPLUS_INCLUDE_PATH",
)  # fmt: skip


def build(unit: Unit, architecture: str, compiler: str) -> Binary:
    """Return what a source compiles to, from the cache where it is there.

    NVRTC has few of the host's headers: where "auto" meets one that it lacks, nvcc is
    asked.

    Args:
        unit: the source.
        architecture: of the processor, e.g. "sm_90".
        compiler: "auto", "nvrtc" or "nvcc".

    Raises:
        BuildError: if no compiler is there, or it cannot build it.
    """
    able = chosen(compiler)
    for last, each in enumerate(able, 1 - len(able)):
        try:
            return _built(unit, architecture, each)
        except BuildError as error:
            if not last or not lacks_header(error):
                raise
    raise AssertionError("the last compiler returned or raised")


def _built(unit: Unit, architecture: str, compiler: Compiler) -> Binary:
    key = key_of(unit, architecture, compiler.version())
    path = _entry(key)
    kept = _read(path)
    if kept is None:
        kept = compiler.build(unit, architecture)
        _keep(path, kept)
    return kept


def key_of(unit: Unit, architecture: str, version: str) -> str:
    """Return the hash of everything that a build depends on.

    The files that it includes too, as far as they are found in its own folder and in
    those that the options name; those of the toolkit go with its version. Where a
    macro names an include, nothing is known of it, and no two keys are equal.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(f"{len(data)}:".encode())
            digest.update(data)

    add(str(_FORMAT), architecture, version, unit.file, unit.text)
    add(*unit.options, "expressions", *unit.expressions, "environment")
    add(*(os.environ.get(name, "") for name in _ENVIRONMENT), "included")
    for path, data in _included(unit):
        add(str(path), data)
    return digest.hexdigest()


def _included(unit: Unit) -> Iterator[tuple[str, bytes]]:
    """Yield what a source includes, and what that does, each file once."""
    folders = [Path(each) for each in _given(unit.options, *_FOLDERS)]
    pending = [(unit.text, unit.folder)]
    for option in _given(unit.options, "-include", "--pre-include"):
        pending.append((f'#include "{option}"', Path.cwd()))
    seen: set[Path] = set()
    while pending:
        text, folder = pending.pop()
        for met in _INCLUDE.finditer(text):
            named = _NAMED.match(met.group(1).strip())
            if named is None:
                yield met.group(1), secrets.token_bytes(16)
                continue
            near = [] if folder is None else [folder]
            for place in (*near, *folders):
                path = (place / named.group(1)).resolve()
                if path in seen:
                    break
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                seen.add(path)
                yield str(path), data
                pending.append((data.decode(errors="replace"), path.parent))
                break


def _given(options: Sequence[str], *names: str) -> Iterator[str]:
    """Yield what options of some names are given, apart, joined or after a "="."""
    for at, option in enumerate(options):
        for name in names:
            if option == name and at + 1 < len(options):
                yield options[at + 1]
            elif option.startswith(name) and option != name:
                yield option.removeprefix(name).lstrip("=")


def _entry(key: str) -> Path | None:
    """Return where a build is kept; None where nothing can be."""
    try:
        return cache_folder("builds", key[:2]) / f"{key}.bin"
    except OSError:
        return None


def _read(path: Path | None) -> Binary | None:
    """Return a kept build: a line of JSON, then its code."""
    if path is None:
        return None
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        facts = files.loads(head)
        whole = hashlib.sha256(code).hexdigest() == facts["sha256"]
        return Binary(code, dict(facts["names"])) if whole else None
    except (OSError, DecodeError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path | None, made: Binary) -> None:
    """Keep a build; a disk that is full keeps none."""
    if path is None:
        return
    facts = {"sha256": hashlib.sha256(made.code).hexdigest(), "names": dict(made.names)}
    try:
        replace_file(
            path, json.dumps(facts).encode() + b"\n" + made.code, prefix=".new-"
        )
    except OSError:
        return
