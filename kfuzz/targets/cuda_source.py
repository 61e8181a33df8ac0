"""`kfuzz.cuda_source`: kernels in CUDA C++, built where they are first launched."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.core.errors import BindingError, HarnessError, suggestion
from kfuzz.core.finding import relative

if TYPE_CHECKING:
    import torch

    from kfuzz.cuda.code import Function, Prototype

COMPILERS: Final = ("auto", "nvrtc", "nvcc")

Sizes = int | Sequence[int]


class LaunchError(RuntimeError):
    """The driver refuses a launch, as it does one without blocks."""


def cuda_source(
    source: str | Path, *, options: Sequence[str] = (), compiler: str = "auto"
) -> "CudaSource":
    """Return a module of CUDA C++ whose kernels can be launched on tensors.

    The first launch builds it, in a child process. kfuzz's cache keeps the build. A
    failed build ends the search of its kernel with the verdict `error`.

    Args:
        source: a file, relative to the calling file; or the source text itself.
        options: for the compiler, e.g. `("-std=c++17", "--use_fast_math")`.
        compiler: "nvrtc", "nvcc", or "auto": NVRTC, and nvcc for a source that needs
            headers which NVRTC lacks.

    Raises:
        BindingError: if there is no such file or compiler.
    """
    frame = sys._getframe(1)
    called = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if compiler not in COMPILERS:
        raise BindingError(
            f"unknown compiler {compiler!r}",
            where=called,
            fix=suggestion(compiler, COMPILERS),
        )
    given = os.fspath(source)
    if isinstance(source, str) and ("\n" in source or "__global__" in source):
        return CudaSource(source, None, called, tuple(options), compiler)
    home = frame.f_globals.get("__file__")
    path = (Path(home).resolve().parent if home else Path.cwd()) / given
    if not os.path.isfile(path):
        raise BindingError(f"there is no file {path}", where=called)
    return CudaSource(None, path, str(path), tuple(options), compiler)


class CudaSource:
    """A source of kernels; see `cuda_source`.

    Attributes:
        path: its file; None where it is a text.
    """

    def __init__(
        self,
        text: str | None,
        path: Path | None,
        where: str,
        options: tuple[str, ...],
        compiler: str,
    ) -> None:
        self.path = path
        self._text = text
        self._where = where
        self._options = options
        self._compiler = compiler
        self._kernels: dict[str, CudaKernel] = {}
        # By process and device: a child has none of what was loaded before the fork.
        self._functions: dict[tuple[int, str, str], Function] = {}
        self._modules: dict[tuple[int, str, tuple[str, ...]], Any] = {}
        self._failed: dict[tuple[int, str, tuple[str, ...]], HarnessError] = {}

    @property
    def text(self) -> str:
        """The source, of a file as it was read first."""
        if self._text is None:
            assert self.path is not None
            self._text = self.path.read_text(encoding="utf-8", errors="replace")
        return self._text

    def kernel(self, name: str) -> "CudaKernel":
        """Return one of its kernels, to be launched as `kernel[grid, block](...)`.

        Args:
            name: of a `__global__` function; with the arguments of a template, as
                C++ writes them, where it is one: "softmax<float>".

        Raises:
            BindingError: if the source has none of the name; what a header or a macro
                declares is not looked for, and not refused.
        """
        if name not in self._kernels:
            self._kernels[name] = self._kernel(name)
        return self._kernels[name]

    def _kernel(self, name: str) -> "CudaKernel":
        from kfuzz.cuda.code import kernels, prototype

        found = prototype(self.text, name)
        base = name.partition("<")[0].strip()
        known = kernels(self.text)
        if found is None and "#include" not in self.text and "#define" not in self.text:
            raise BindingError(
                f"there is no kernel {base!r}",
                where=self._where,
                fix=suggestion(base, known) if known else "it declares none",
            )
        return CudaKernel(self, name, found)

    def function(self, name: str, plain: bool, device: "torch.device") -> "Function":
        """Return a kernel built and loaded on a device.

        Args:
            name: as C++ names it.
            plain: whether it has that name in machine code.
            device: where it runs.

        Raises:
            BuildError: if it cannot be built, or is not in what is built.
        """
        key = (os.getpid(), str(device), name)
        if key not in self._functions:
            self._functions[key] = self._loaded(name, plain, device)
        return self._functions[key]

    def _loaded(self, name: str, plain: bool, device: "torch.device") -> "Function":
        from kfuzz.core.errors import BuildError
        from kfuzz.cuda import compilers as builds
        from kfuzz.cuda.compilers import Unit
        from kfuzz.execution.calls.compiling import at_work
        from kfuzz.execution.device.backends import backend_of

        asked = () if plain else (name,)
        key = (os.getpid(), str(device), asked)
        if key in self._failed:
            raise self._failed[key]
        try:
            place = backend_of(device).loader(device)
            if key not in self._modules:
                unit = Unit(
                    self.text,
                    self._shown(),
                    None if self.path is None else self.path.parent,
                    self._options,
                    asked,
                )
                with at_work():  # a child's pulse beats
                    made = builds.build(unit, place.architecture(), self._compiler)
                self._modules[key] = (place.load(made.code), dict(made.names))
            module, names = self._modules[key]
            return place.function(module, names.get(name, name))
        except HarnessError as error:
            failed = error
            if not isinstance(error, BuildError):
                failed = BuildError(
                    f"{name} cannot be loaded: {error}", where=self._where
                )
            elif self.path is None:  # the text's own lines are counted from its first
                failed = BuildError(str(error), where=self._where)
            self._failed[key] = failed
            raise failed from None

    def _shown(self) -> str:
        """Return its name in a compiler's messages."""
        return "source.cu" if self.path is None else relative(str(self.path), Path())


class CudaKernel:
    """One kernel of a source, not launched yet."""

    def __init__(
        self, source: CudaSource, name: str, prototype: "Prototype | None"
    ) -> None:
        self.source = source
        self.name = name
        self._prototype = prototype

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """Return it with grid and block, shared bytes and stream where they matter.

        Args:
            configuration: as between `<<<` and `>>>`: blocks, threads, bytes of
                dynamic shared memory (0), a `torch.cuda.Stream` (the current one).

        Returns:
            What launches it on its arguments: tensors by address, Python's numbers as
            the kernel declares them, numpy's scalars as they are, None for no address.

        Raises:
            TypeError: if that is not two to four of these.
        """
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise TypeError(
                f"{self.name}[grid, block, shared_bytes, stream] takes two to four "
                f"values, {configuration!r:.60} is given"
            )
        defaults = (0, None)[len(configuration) - 2 :]
        return partial(self.launch, *configuration, *defaults)

    def launch(
        self, grid: Sizes, block: Sizes, shared: int, stream: Any, *values: Any
    ) -> None:
        """Launch it on the device of its first tensor.

        Raises:
            TypeError: if an argument is not what it takes.
            OverflowError: if a number is too large for its parameter.
            BuildError: if it cannot be built.
            LaunchError: if the driver refuses.
        """
        from kfuzz.cuda.code import packed

        devices = {v.device for v in values if hasattr(v, "data_ptr")}
        if len(devices) != 1:
            told = ", ".join(sorted(map(str, devices))) or "no tensor"
            raise TypeError(f"{self.name} runs on the device of its tensors: {told}")
        arguments = packed(self._prototype, values, self.name)
        plain = self._prototype is None or self._prototype.plain
        function = self.source.function(
            self.name, plain and "<" not in self.name, devices.pop()
        )
        try:
            function(_sizes(grid), _sizes(block), arguments, int(shared), stream)
        except HarnessError as error:
            raise LaunchError(
                f"{self.name}[{grid}, {block}, {shared}]: {error}"
            ) from None


def _sizes(given: Sizes) -> tuple[int, ...]:
    """Return one to three sizes."""
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(sizes) <= 3:
        raise TypeError(f"a grid or a block has one to three dimensions, not {sizes}")
    return tuple(map(int, sizes))
