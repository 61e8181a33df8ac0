"""Which branches of a kernel's own file have run: its wrapper, and interpreted bodies.

A branch is a suite that need not run: below `if`, `elif`, `else`, `for`, `while`,
`except` and `case`, where it has lines of its own. It is known by its first line.

From Python 3.12 on `sys.monitoring` (PEP 669) tells of each line of that file once and
is then silent there: what a call costs more is too little to measure. Python 3.11 has
`sys.settrace` alone, under which all of Python is slow, so that it sees one case in
`SHARE`, and nothing can be said of what never ran. Where a debugger, a profiler or a
coverage tool is at work, or torch compiles, nothing is watched.
"""

import ast
import functools
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

from kfuzz.core.random_streams import Purpose, is_sampled
from kfuzz.execution.calls.compiling import Holder

SHARE: Final = 64
"""One case in so many is watched where watching is dear."""

# The id of `sys.monitoring` used here, one that no kind of tool has to itself, and how
# many ids there are.
_TOOL_ID: Final = 4
_TOOL_IDS: Final = 6

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Branches:
    """What a process saw of the branches of a kernel's file, each told once.

    A branch is known by its first line.

    Attributes:
        entered: branches of functions that were entered for the first time.
        run: branches that ran for the first time.
        whole: whether every call is watched, so that what is not told did not run.
    """

    entered: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    whole: bool = False


class Reached:
    """The branches that a kernel's processes have told of.

    Attributes:
        entered: branches of functions that were entered.
        run: those of them that ran.
        complete: whether no process can have kept one to itself.
    """

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.entered: set[int] = set()
        self.run: set[int] = set()
        self.complete = True

    def take(self, told: Branches | None) -> None:
        """Take what a process says; None where it does not watch or has died."""
        if told is None:
            self.complete = False
            return
        self.entered.update(told.entered)
        self.run.update(told.run)
        self.complete = self.complete and told.whole

    def missing(self) -> tuple[int, ...]:
        """Return the branches that never ran, in order; none where that is unknown."""
        return tuple(sorted(self.entered - self.run)) if self.complete else ()


def watch(function: object) -> "Watch | None":
    """Watch the file that defines a kernel, from now on.

    Args:
        function: the implementation, behind whatever decorators.

    Returns:
        None where it is not Python of a file that can be read, or a library's, or
        other tools watch this process.
    """
    code = _code_of(function)
    if code is None or _others_watch():
        return None
    arms = Arms.of(code.co_filename)
    if arms is None:
        return None
    if sys.version_info >= (3, 12):
        return Monitored(arms)
    return Watch(arms)


def source_of(function: object) -> str:
    """Return the file that defines an implementation, "" where none does."""
    code = _code_of(function)
    return "" if code is None else code.co_filename


def _others_watch() -> bool:
    """Whether another tool follows this process, or torch rewrites its functions."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    if sys.version_info >= (3, 12):
        tools = map(sys.monitoring.get_tool, range(_TOOL_IDS))
        if any(tool is not None for tool in tools):
            return True
    return "torch._dynamo" in sys.modules


def _code_of(function: object) -> CodeType | None:
    """Return the code of an implementation, None where it has none in Python."""
    for _ in range(100):  # decorators could refer to one another
        if isinstance(function, functools.partial):
            function = function.func
            continue
        for name in ("__wrapped__", "fn", "__func__"):
            inner = getattr(function, name, None)
            if callable(inner):
                function = inner
                break
        else:
            break
    methods = (vars(c) for c in type(function).__mro__)
    called = (m[name] for m in methods for name in ("forward", "__call__") if name in m)
    for found in (function, *called):
        code = getattr(found, "__code__", None)
        if isinstance(code, CodeType):
            return None if _is_librarys(code.co_filename) else code
    return None


def _is_librarys(file: str) -> bool:
    """Whether a file is torch's or Triton's, whose branches are nobody's concern."""
    for name in ("torch", "triton"):
        home = getattr(sys.modules.get(name), "__file__", None)
        if home and file.startswith(os.path.dirname(home) + os.sep):
            return True
    return False


class Arms:
    """The branches in the functions of one file.

    Attributes:
        file: its path, as code objects have it.
        entered: the branches of functions that have been entered.
        run: those of them that have run.
    """

    def __init__(self, file: str, tree: ast.Module) -> None:
        """Find the branches of every function; see `of` for what may go wrong."""
        self.file = file
        self.entered: set[int] = set()
        self.run: set[int] = set()
        self._news: tuple[list[int], list[int]] = ([], [])
        # By name and first line, decorators or not: the branches, each with its end.
        self._functions: dict[tuple[str, int], dict[int, int]] = {}
        # Line -> the branches that it lies in.
        self._within: defaultdict[int, list[int]] = defaultdict(list)
        for node in ast.walk(tree):
            if not isinstance(node, _Function):
                continue
            arms = dict(_suites(node))
            starts = [d.lineno for d in node.decorator_list]
            for line in {node.lineno, min([node.lineno, *starts])}:
                self._functions[node.name, line] = arms

    @classmethod
    def of(cls, file: str) -> "Arms | None":
        """Return the branches of a file, None where it cannot be read as Python."""
        try:
            with open(file, "rb") as source:
                return cls(file, ast.parse(source.read()))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None

    def enter(self, code: CodeType) -> bool:
        """Take note of a function and return whether there are branches in it."""
        arms = self._functions.get((code.co_name, code.co_firstlineno))
        if not arms:
            return False
        # What the compiler left out, such as `if False:`, cannot run.
        lines = {line for _, _, line in code.co_lines() if line is not None}
        for start, end in arms.items():
            if lines.isdisjoint(range(start, end + 1)) or start in self.entered:
                continue
            self.entered.add(start)
            self._news[0].append(start)
            for line in range(start, end + 1):
                self._within[line].append(start)
        return True

    def hit(self, line: int) -> None:
        """Take note of a line that has run in a function that was entered."""
        for start in self._within.get(line, ()):
            if start not in self.run:
                self.run.add(start)
                self._news[1].append(start)

    def news(self, *, whole: bool) -> Branches:
        """Return what has been noted since the last time."""
        entered, run = self._news
        self._news = ([], [])
        return Branches(tuple(sorted(entered)), tuple(sorted(run)), whole)


def _suites(function: _Function) -> Iterator[tuple[int, int]]:
    """Yield first and last line of each branch of a function, not of those inside."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Function | ast.ClassDef | ast.Lambda):
            continue  # entered on its own
        waiting.extend(ast.iter_child_nodes(node))
        for header, suite in _branches(node):
            first = suite[0]
            above = [d.lineno for d in getattr(first, "decorator_list", ())]
            start, end = min([first.lineno, *above]), suite[-1].end_lineno
            if end is not None and start > header:
                yield start, end


def _branches(node: ast.AST) -> Iterator[tuple[int, list[ast.stmt]]]:
    """Yield the suites that a statement may pass over, after the last line above."""
    match node:
        case ast.If(test=test, body=body, orelse=other):
            yield test.end_lineno or node.lineno, body
            # An `elif` is an `if` in here; its own suites are what counts.
            nested = len(other) == 1 and isinstance(other[0], ast.If)
            if other and not (nested and other[0].col_offset == node.col_offset):
                yield body[-1].end_lineno or node.lineno, other
        case ast.For() | ast.AsyncFor() | ast.While():
            head = node.test if isinstance(node, ast.While) else node.iter
            yield head.end_lineno or node.lineno, node.body
            if node.orelse:
                yield node.body[-1].end_lineno or node.lineno, node.orelse
        case ast.Try() | ast.TryStar():
            for handler in node.handlers:
                yield handler.lineno, handler.body
            if node.orelse:
                yield node.orelse[0].lineno - 1, node.orelse
        case ast.Match():
            for case in node.cases:
                last = case.guard or case.pattern
                yield last.end_lineno or node.lineno, case.body
        case _:
            pass


class Watch:
    """Watches by `sys.settrace`, one case in `SHARE`, while the kernel runs."""

    def __init__(self, arms: Arms) -> None:
        """Watch nothing before a case is asked for."""
        self._arms = arms
        self._due = False
        self._on = False

    def ask(self, seed: int | None) -> None:
        """Say that the case of a seed is next, or a burst, which is not watched."""
        drawn = seed is not None and is_sampled(seed, Purpose.TRACING, 1 / SHARE)
        self._due = drawn

    def occupied(self, holder: Holder) -> None:
        """Hear who has the process."""
        if holder is Holder.KERNEL and self._due and not _others_watch():
            self._on = True
            sys.settrace(self._global)
        elif holder is Holder.KFUZZ and self._on:
            self._on = False
            # A kernel may have set one of its own.
            if getattr(sys.gettrace(), "__self__", None) is self:
                sys.settrace(None)

    def news(self) -> Branches:
        """Return what was seen since the last time."""
        return self._arms.news(whole=False)

    def close(self) -> None:
        """Watch no more."""
        self.occupied(Holder.KFUZZ)
        self._due = False

    def _global(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != self._arms.file:
            return None
        return self._local if self._arms.enter(frame.f_code) else None

    def _local(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._arms.hit(frame.f_lineno)
        return self._local


if sys.version_info >= (3, 12):
    _events = sys.monitoring.events

    class Monitored(Watch):
        """Watches by `sys.monitoring`, each line until it has run once."""

        def __init__(self, arms: Arms) -> None:
            """Begin to watch.

            A function is told of once too, and what lies in other files costs nothing
            after that.
            """
            self._arms = arms
            sys.monitoring.use_tool_id(_TOOL_ID, "kfuzz")
            register = sys.monitoring.register_callback
            register(_TOOL_ID, _events.PY_START, self._started)
            register(_TOOL_ID, _events.LINE, self._line)
            sys.monitoring.set_events(_TOOL_ID, _events.PY_START)

        def ask(self, seed: int | None) -> None:
            """Hear of a case or a burst; all are watched."""

        def occupied(self, holder: Holder) -> None:
            """Hear of the kernel; it is watched whenever it runs."""

        def news(self) -> Branches:
            """Return what was seen since the last time."""
            return self._arms.news(whole=True)

        def close(self) -> None:
            """Watch no more."""
            if sys.monitoring.get_tool(_TOOL_ID) != "kfuzz":
                return
            sys.monitoring.set_events(_TOOL_ID, 0)
            for event in (_events.PY_START, _events.LINE):
                sys.monitoring.register_callback(_TOOL_ID, event, None)
            sys.monitoring.free_tool_id(_TOOL_ID)

        def _started(self, code: CodeType, _: int) -> Any:
            if code.co_filename == self._arms.file and self._arms.enter(code):
                sys.monitoring.set_local_events(_TOOL_ID, code, _events.LINE)
            return sys.monitoring.DISABLE

        def _line(self, _: CodeType, line: int) -> Any:
            self._arms.hit(line)
            return sys.monitoring.DISABLE
