"""The program of the process that candidates are forked from.

A candidate that is wrong only where it is not judged has to be told from one that is
right. So what runs it is imported from texts in memory, under a neutral name: there is
no file, folder, module or argument that names its judge. What still shows is listed in
this folder's README.

This file is that program, of the standard library alone, which Python reads from its
standard input; and `program` is how it is made.
"""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import ExecutionLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any, Final

ALIAS: Final = "runtime"
"""What this package is called there."""

# Which packages a folder of the path has to hold to stay in it.
_NEEDED: Final = ("torch", "triton", "numpy")


class Sources(ExecutionLoader):
    """Finds and loads modules.

    Attributes:
        texts: by name; those of packages are marked.
    """

    def __init__(self, texts: dict[str, tuple[bool, str]]) -> None:
        self.texts = texts

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Return how a module is loaded, None for one of another package."""
        return spec_from_loader(name, self) if name in self.texts else None

    def is_package(self, fullname: str) -> bool:
        """Whether a module is a package."""
        return self.texts[fullname][0]

    def get_source(self, fullname: str) -> str:
        """Return the text of a module, which Triton compiles functions from."""
        return self.texts[fullname][1]

    def get_filename(self, fullname: str) -> str:
        """Return the name of a file that is not there."""
        inner = "/__init__" if self.is_package(fullname) else ""
        return f"{fullname.replace('.', '/')}{inner}.py"


def begin(
    named: str, texts: dict[str, tuple[bool, str]], main: str, *arguments: str
) -> None:
    """Be that process.

    Args:
        named: the package that nothing is to name.
        texts: see `Sources`.
        main: the module whose `main` is called.
        arguments: for it.
    """
    os.chdir("/")
    del sys.path[0]  # where the campaign works
    sys.path[:] = [path for path in sys.path if not _is_alone(named, Path(path))]
    # An installed copy in a checkout is found by a hook of its own.
    places: tuple[list[Any], ...] = sys.meta_path, sys.path_hooks
    for place in places:
        place[:] = [x for x in place if named not in getattr(x, "__module__", "")]
    for name in [name for name in sys.modules if named in name]:
        del sys.modules[name]
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, Sources(texts))
    sys.argv += arguments
    import_module(main).main()


def load_all() -> None:
    """Import all that there is a text of, keep no text, and find no more."""
    finder = next(x for x in sys.meta_path if isinstance(x, Sources))
    for name in finder.texts:
        # What reads a file beside itself is no part of running a kernel.
        with contextlib.suppress(ImportError, OSError):
            import_module(name)
    sys.meta_path.remove(finder)
    for name in filter(sys.modules.__contains__, finder.texts):
        space = vars(sys.modules[name])
        space.update(__loader__=None, __spec__=ModuleSpec(name, None))
    finder.texts.clear()


def _is_alone(named: str, folder: Path) -> bool:
    """Whether a folder of the path holds a package and none that is needed."""
    alone = not any((folder / name).is_dir() for name in _NEEDED)
    return alone and (folder / named).is_dir()


def program(home: str, roots: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the program.

    Args:
        home: the folder that this package lies in.
        roots: its modules that are needed, with all that they import; the first one's
            `main` is called.
        arguments: for that.
    """
    named = __name__.partition(".")[0]
    word = partial(re.compile(rf"\b{named}\b").sub, ALIAS)
    imports = re.compile(rf"(?:from|import) ({named}[\w.]*)(?: import (\([^)]*\)|.*))?")
    unused = re.compile(r"(?m)^if TYPE_CHECKING:\n(?:    .*\n|\n)+")
    texts: dict[str, tuple[bool, str]] = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        folder = Path(home, *name.split("."))
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if word(name) in texts or not file.is_file():
            continue
        text = file.read_text("utf-8")
        texts[word(name)] = folder.is_dir(), word(text)
        pending.append(name.rpartition(".")[0])
        for module, names in imports.findall(unused.sub("", text)):
            pending += [module, *(f"{module}.{n}" for n in re.findall(r"\w+", names))]
    given = (named, texts, *map(word, (roots[0], *arguments)))
    return f"{Path(__file__).read_text('utf-8')}\nbegin(*{given!r})\n"
