"""What Triton's interpreter looks up time and again, looked up once in a watch.

Before each launch, and for each call of a function of the device's, it goes through all
of triton.language; for each block it makes a table of all dtypes. What comes of it is
the same each time. Keeping it costs less than it saves, and pays for checks.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kfuzz.execution.calls.patches import Patches

_NEEDED: Final = {
    "_patch_attr": ("obj", "name", "member", "builder", "scope"),
    "_patch_builtin": ("pkg", "builder", "scope"),
    "_patch_lang": ("fn",),
    "_LangPatchScope": (),
}

# The builtins of a module or class, by it and its number of attributes: the interpreter
# adds some, and so may others.
_builtins: dict[tuple[Any, int], list[str]] = {}


def install(module: Any, patches: Patches) -> None:
    """Have the interpreter keep what it looks up until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`, with its own patches in place.
        patches: takes what is replaced.
    """
    patches.set(module, "_get_np_dtype", _remembered(module._get_np_dtype))
    if not _is_known(module):
        return
    within = _Within(module)
    patches.set(module, "_patch_builtin", within.patch_builtin)
    patches.set(module, "_patch_lang", within.patch_lang)
    patches.set(module.GridExecutor, "__call__", within.launching())


@cache
def _is_known(module: Any) -> bool:
    """Whether a release's functions are those that are replaced here."""
    found = {name: getattr(module, name, None) for name in _NEEDED}
    return all(
        callable(f) and tuple(inspect.signature(f).parameters) == _NEEDED[name]
        for name, f in found.items()
    )


def _remembered(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Ask once for each dtype; names tell them apart."""
    known: dict[str, Any] = {}

    def np_dtype(tt_dtype: Any) -> Any:
        name = getattr(tt_dtype, "name", None)
        if name.__class__ is not str:
            return original(tt_dtype)
        found = known.get(name)
        if found is None:
            found = known[name] = original(tt_dtype)
        return found

    return np_dtype


def _names(module: Any, pkg: Any) -> list[str]:
    """Return what is a builtin, or stands for one already."""
    key = pkg, len(vars(pkg))
    found = _builtins.get(key)
    if found is None:
        is_builtin = module.tl.core.is_builtin
        found = _builtins[key] = [
            name
            for name, member in inspect.getmembers(pkg)
            if is_builtin(member)
            or getattr(member, "__module__", None) == module.__name__
        ]
    return found


class _Within:
    """Patches each part of triton.language once in a launch.

    The interpreter does so for the kernel and for every call of a device function, and
    takes it back after the launch.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._is_builtin = module.tl.core.is_builtin
        self._patch_attr = module._patch_attr
        self._patch_lang = module._patch_lang
        self._executor = module.GridExecutor.__call__
        # By their ids, in a launch: modules, classes, and what functions see.
        self._patched: dict[int, Any] | None = None

    def patch_lang(self, fn: Any) -> Any:
        """Patch what a function sees of triton.language, if that is still to do."""
        patched, sees = self._patched, fn.__globals__
        if patched is None:
            return self._patch_lang(fn)
        if id(sees) in patched:
            return self._module._LangPatchScope()
        scope = self._patch_lang(fn)
        patched[id(sees)] = sees
        return scope

    def patch_builtin(self, pkg: Any, builder: Any, scope: Any) -> None:
        """Replace the builtins of a module or class, if that is still to do."""
        patched = self._patched
        if patched is not None:
            if id(pkg) in patched:
                return
            patched[id(pkg)] = pkg
        for name in _names(self._module, pkg):
            member = getattr(pkg, name)
            if self._is_builtin(member):
                self._patch_attr(pkg, name, member, builder, scope)

    def launching(self) -> Callable[..., Any]:
        """Return the launch of a grid that tells its beginning and its end."""

        def launch(executor: Any, *arguments: Any, **named: Any) -> Any:
            outer, self._patched = self._patched, {}
            try:
                return self._executor(executor, *arguments, **named)
            finally:
                self._patched = outer

        return launch
