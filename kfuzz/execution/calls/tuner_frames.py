"""What the frames between a kernel's call and a launch tell of a tuner.

Which list of configurations it goes through, and where it may keep what it measures.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

from kfuzz.execution.calls.autotuning import MODULE

# Names in the code of what reads a clock.
_CLOCKS: Final = frozenset(
    {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"}
    | {"process_time", "elapsed_time", "timeit"}
)
# Whose frames between a kernel's call and a launch are no tuner's.
_NO_TUNERS: Final = (
    "triton.",
    "torch.",
    "kfuzz.execution.",
    "kfuzz.targets.",
    "kfuzz.contracts.binding.",
)
# What a configuration may name beside the kernel's own parameters.
_OPTIONS: Final = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
_ITERATORS: Final[tuple[type, ...]] = (type(iter([])), type(iter(())))


@dataclass
class Loop:
    """A tuner's list of configurations, wherever it is held.

    Attributes:
        names: parameters of the kernel that it launches.
        configs: all of them, in order.
        lists: the lists that hold them, shortened in place.
        places: namespaces, with the names under which they hold a tuple of them.
    """

    names: frozenset[str]
    configs: tuple[Any, ...]
    lists: list[list[Any]] = field(default_factory=list)
    places: list[tuple[MutableMapping[str, Any], str]] = field(default_factory=list)

    def hold(self, *configs: Any) -> None:
        """Have the tuner find these alone."""
        for each in self.lists:
            each[:] = configs
        for namespace, name in self.places:
            namespace[name] = configs


@dataclass
class Memory:
    """What a tuner may have kept of what it measured.

    Attributes:
        tables: mappings, with the keys that they had before.
        unset: namespaces, with the names that were None before.
        cached: functions with a cache of their results.
    """

    tables: list[tuple[MutableMapping[Any, Any], frozenset[Any]]]
    unset: list[tuple[MutableMapping[str, Any], str]]
    cached: list[Any]

    def forget(self) -> None:
        """Put it back to what it was."""
        for table, keys in self.tables:
            for key in [key for key in table if key not in keys]:
                del table[key]
        for namespace, name in self.unset:
            namespace[name] = None
        for function in self.cached:
            function.cache_clear()


def frames_below(code: CodeType) -> Iterator[FrameType]:
    """Yield the frames from a call of this code to here that may be a tuner's.

    The inmost comes first. There are none if the code has not been called.
    """
    seen = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        name = str(frame.f_globals.get("__name__", ""))
        if not f"{name}.".startswith(_NO_TUNERS):
            seen.append(frame)
        frame = frame.f_back
    if frame is not None:
        yield from seen


def _namespaces(frame: FrameType) -> Iterator[tuple[Any, list[str]]]:
    """Yield what a frame's function keeps its things in, with the names in question."""
    code, values = frame.f_code, frame.f_locals
    if code.co_argcount:
        own = getattr(values.get(code.co_varnames[0]), "__dict__", None)
        if isinstance(own, dict):
            yield own, list(own)
    names = [name for name in code.co_names if name in frame.f_globals]
    yield frame.f_globals, names


def memory_of(frames: list[FrameType]) -> Memory:
    """Return what a tuner with these frames may keep, as it is now."""
    memory = Memory([], [], [])
    for frame in frames:
        code = frame.f_code
        for namespace, names in _namespaces(frame):
            values = [(name, namespace[name]) for name in names]
            memory.unset += [(namespace, name) for name, v in values if v is None]
            tables = [v for _, v in values if isinstance(v, MutableMapping)]
            memory.tables += [(table, frozenset(table)) for table in tables]
            memory.cached += [v for _, v in values if _caches(v)]
        free = [frame.f_locals.get(name) for name in code.co_freevars]
        tables = [v for v in free if isinstance(v, MutableMapping)]
        memory.tables += [(table, frozenset(table)) for table in tables]
        named: Any = frame.f_globals.get(code.co_name)
        if _caches(named) and named.__wrapped__.__code__ is code:
            memory.cached.append(named)
    return memory


def _caches(value: object) -> Any:
    wrapped = getattr(value, "__wrapped__", None)
    return inspect.isfunction(wrapped) and hasattr(value, "cache_clear")


def reads_a_clock(frames: list[FrameType]) -> bool:
    """Whether the code of one of the frames names a clock."""
    return any(_CLOCKS.intersection(frame.f_code.co_names) for frame in frames)


def loop_of(
    frames: list[FrameType], names: frozenset[str], rejected: Sequence[object]
) -> Loop | None:
    """Return the list of configurations that one of the frames goes through.

    Args:
        frames: from the kernel's call to a launch.
        names: the kernel's parameters.
        rejected: lists that are known to be no tuner's.
    """
    held: list[tuple[Any, str, Any]] = []
    local: list[Any] = []
    for frame in frames:
        for namespace, own in _namespaces(frame):
            held += [(namespace, name, namespace[name]) for name in own]
        closed = [(None, n, frame.f_locals.get(n)) for n in frame.f_code.co_freevars]
        held += [each for each in closed if isinstance(each[2], list)]
        local += frame.f_locals.values()
    held = [each for each in held if _are_configs(each[2], names)]
    held = [each for each in held if not any(each[2] is r for r in rejected)]
    gone_through = [
        each
        for each in [*(value for _, _, value in held), *local]
        if _are_configs(each, names) and _is_gone_through(each)
    ]
    for each in gone_through:
        holding = [h for h in held if all(any(c is o for o in h[2]) for c in each)]
        if holding:
            loop = Loop(names, tuple(holding[0][2]))
            same = [h for h in holding if _is_same(h[2], loop.configs)]
            loop.lists = [value for _, _, value in same if isinstance(value, list)]
            loop.places = [(n, at) for n, at, v in same if isinstance(v, tuple)]
            return loop
    return None


def _is_same(value: Any, configs: tuple[Any, ...]) -> bool:
    pairs = zip(value, configs, strict=False)
    return len(value) == len(configs) and all(a is b for a, b in pairs)


def _are_configs(value: Any, names: frozenset[str]) -> bool:
    """Whether a value is a list of several configurations of a kernel."""
    if type(value) not in (list, tuple) or len(value) < 2:
        return False
    config: Any = getattr(sys.modules.get(MODULE), "Config", ())
    if all(isinstance(each, config) for each in value):
        return True
    return all(
        isinstance(each, Mapping) and _OPTIONS | names >= each.keys() and each
        for each in value
    )


def _is_gone_through(value: Any) -> bool:
    """Whether something iterates over a list now."""
    return any(isinstance(each, _ITERATORS) for each in gc.get_referrers(value))


def words(config: Any) -> str:
    """Return a configuration in words."""
    if isinstance(config, Mapping):
        return ", ".join(f"{name}: {value}" for name, value in config.items())
    return str(config)


def words_of(function: Any) -> str:
    """Return the configuration that a function is closed over, in words, or ""."""
    config: Any = getattr(sys.modules.get(MODULE), "Config", ())
    values: list[Any] = []
    if isinstance(function, functools.partial):
        values += [*function.args, *function.keywords.values()]
    values += getattr(function, "__defaults__", None) or ()
    values += [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    for value in values:
        plain = (
            isinstance(value, dict) and value and all(map(_is_plain, value.values()))
        )
        if isinstance(value, config) or plain:
            return words(value)
    return ""


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str | bool)
