"""The end of a script: call the kernel, tell whether it still fails, exit."""

import re
from string import Template
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Kind
from kfuzz.engine.script.changes import changed_check
from kfuzz.engine.script.destinations import HANDED_BACK

FAILS_OR_PASSES: Final = "Exit code 1: it still fails; 0: it passes."
FAILS_OR_UNTOLD: Final = (
    "Exit code 1: it still fails; 2: a plain script cannot tell whether it does."
)
CANNOT_TELL: Final = "Exit code 2: a plain script cannot tell whether it still fails."

# Elements around an argument that a script watches: a tile of 1024 and more.
GUARD: Final = 2048
# Elements that a script may lay out anew to watch them; a view may span terabytes.
MAX_WATCHED: Final = 1 << 24

_UNSEEN: Final = {k: text for c in ATTRIBUTION for k, text in c.unseen.items()}

_CALL: Final = "kernel(*arguments, **scalars)"

_VALUE: Final = Template("""\
result = kernel(*arguments, **scalars)
$pick
got = result[$index].item() if result.dim() else result.item()
print($label, got)
print("expected $expected, admissible $low to $high")
nan = float("nan")
inf = float("inf")
low, high, expected = $low, $high, $expected
if expected != expected:
    fails = got == got
elif got != got:
    fails = True
else:
    fails = not low <= got <= high$zero
print("FAILS" if fails else $passes)
sys.exit(1 if fails else $code)""")

# What a kernel should have returned in place of one tensor.
_COUNT: Final = re.compile(r"expected (\d+) tensors$")

# Where a zero fails against a zero, its sign is wrong.
_SIGN: Final = " or (got == 0 and str(got) != str(expected))"

_GUARDED: Final = Template('''\
GUARD = $guard  # elements watched on either side of each argument


def guarded(view):
    """Lay an argument out again inside a larger memory; return both."""
    size, old = view.element_size(), view.untyped_storage()
    zone = GUARD * size
    room = old.nbytes() + 2 * zone
    memory = torch.full((room,), 90, dtype=torch.uint8, device=DEVICE)
    storage = memory.untyped_storage()[zone : zone + old.nbytes()]
    storage.copy_(old)
    moved = torch.empty(0, dtype=view.dtype, device=DEVICE)
    return moved.set_(storage, view.storage_offset(), view.shape, view.stride()), memory


def outside(view, memory, before):
    """Count the elements that changed, but for the argument's own."""
    size = view.element_size()
    places = torch.arange(memory.numel() // size, device=DEVICE)
    start = GUARD + view.storage_offset()
    own = places.as_strided(view.shape, view.stride(), start).reshape(-1)
    changed = (memory != before).reshape(-1, size).any(1)
    changed[own] = False
    return int(changed.sum())


pairs = [guarded(a) for a in arguments]
arguments = [view for view, _ in pairs]
before = [memory.clone() for _, memory in pairs]
kernel(*arguments, **scalars)
if DEVICE != "cpu":
    torch.cuda.synchronize()
counts = [outside(*pair, old) for pair, old in zip(pairs, before)]
print("elements changed outside each argument:", counts)
print("FAILS" if any(counts) else "passes")
sys.exit(1 if any(counts) else 0)''')

_MODIFIED: Final = Template("""\
def bits(a):
    return a.contiguous().reshape(-1).view(torch.uint8)


before = [a.clone() for a in arguments$inputs]
kernel(*arguments, **scalars)
changed = [
    not torch.equal(bits(a), bits(b)) for a, b in zip(arguments, before)
]
print("FAILS: an input changed" if any(changed) else "passes")
sys.exit(1 if any(changed) else 0)""")

_RAISES: Final = """\
try:
    kernel(*arguments, **scalars)
except Exception as error:
    print("FAILS:", type(error).__name__, error)
    sys.exit(1)
print("passes")"""

_MUST_RAISE: Final = Template("""\
try:
    kernel(*arguments, **scalars)
except Exception as error:
    print("passes:", type(error).__name__, error)
    sys.exit(0)
print("FAILS: it returns although $why")
sys.exit(1)""")

_FOREIGN: Final = Template("""\
from torch.utils._python_dispatch import TorchDispatchMode

called = set()


class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
        dtypes |= {kwargs["dtype"]} if kwargs.get("dtype") else set()
        if $counts:
            called.add(func._schema.name)
        return func(*args, **kwargs)


with torch.no_grad(), Calls():
    kernel(*arguments, **scalars)
name = $name
fails = name in called
print(f"FAILS: it computes with {name}" if fails else "passes")
sys.exit(1 if fails else 0)""")

_ALIASES: Final = Template("""\
def memory(tensor):
    return tensor.untyped_storage().data_ptr()


$others
result = kernel(*arguments, **scalars)
results = result if isinstance(result, (tuple, list)) else [result]
fails = any(r.numel() and memory(r) in map(memory, others) for r in results)
print("FAILS: the result shares memory with $what" if fails else "passes")
sys.exit(1 if fails else 0)""")

_SEEDS: Final = """\
def run(seed):
    torch.manual_seed(seed)
    result = kernel(*arguments, **scalars)
    results = result if isinstance(result, (tuple, list)) else [result]
    return [r.contiguous().reshape(-1).view(torch.uint8).clone() for r in results]


fails = any(not torch.equal(a, b) for a, b in zip(run(0), run(1)))
print("FAILS: the result depends on torch's seed" if fails else "passes")
sys.exit(1 if fails else 0)"""


def check(finding: Finding) -> tuple[str, str]:
    """Return the code that calls the kernel and exits, and what its codes mean.

    The code stands after `kernel`, `arguments` and `scalars`.
    """
    code = _check(finding)
    if code is not None:
        return code, FAILS_OR_UNTOLD if _filled_otherwise(finding) else FAILS_OR_PASSES
    what = _UNSEEN.get(finding.failure.kind, "this failure")
    if _is_tuned(finding) and finding.failure.kind is not Kind.TUNING_DEPENDENT:
        what = "which configuration runs"
    relation = finding.failure.index is not None and finding.failure.expected is None
    if relation and finding.failure.kind not in _UNSEEN:
        what = "whether the results fit together"
    lines = []
    if finding.failure.kind is Kind.WRITE_OUTSIDE:
        warning = "it overwrites memory that is not its own: this may crash"
        lines = [f'print("{warning}", flush=True)']
    lines += (
        _CALL,
        f'print("it returned; a plain script cannot see {what}")',
        f'print("check it with: kfuzz replay {finding.id}")',
        "sys.exit(2)",
    )
    return "\n".join(lines), CANNOT_TELL


def _check(finding: Finding) -> str | None:
    """Return the check of a failure, None where a script has none."""
    failure = finding.failure
    comparable = failure.index is not None and failure.expected is not None
    if _is_tuned(finding):
        return None
    match failure.kind:
        case Kind.UNWRITTEN:
            # torch's own switch fills fresh memory with NaN.
            return (
                "torch.use_deterministic_algorithms(True, warn_only=True)\n"
                "torch.utils.deterministic.fill_uninitialized_memory = True\n"
                + _value_check(finding)
                if comparable
                else None
            )
        case Kind.INPUT_MODIFIED:
            inputs = "[:inputs]" if finding.declaration.out else ""
            return _MODIFIED.substitute(inputs=inputs)
        case Kind.WRITE_OUTSIDE:
            return _guarded(finding)
        case Kind.RAISES:
            return _RAISES
        case Kind.INDEX_ACCEPTED if not comparable:
            return _MUST_RAISE.substitute(why="an index is out of bounds")
        case Kind.NONFINITE_ACCEPTED:
            return _MUST_RAISE.substitute(why="its data hold a NaN or an infinity")
        case Kind.FOREIGN_OPERATOR:
            name = failure.detail
            copies = name.endswith(("copy", "copy_", "clone"))
            counts = "len(dtypes) > 1" if copies else "True"
            return _FOREIGN.substitute(name=repr(name), counts=counts)
        case Kind.WRONG_TYPE if finding.declaration.out and not failure.output:
            return HANDED_BACK
        case Kind.ALIASES_INPUT:
            inplace = finding.declaration.inplace
            places = [i for i, n in enumerate(finding.case.tensors) if n not in inplace]
            others = f"others = [arguments[i] for i in {places}]"
            return _ALIASES.substitute(others=others, what="an argument")
        case Kind.ALIASES_OUTPUT:
            others = (
                f"first = {_CALL}\n"
                "others = first if isinstance(first, (tuple, list)) else [first]"
            )
            return _ALIASES.substitute(others=others, what="an earlier one")
        case Kind.SEED_DEPENDENT:
            return _SEEDS
        case Kind.SCALE_DEPENDENT | Kind.ORDER_DEPENDENT:
            if not comparable:
                return None
            return changed_check(finding, _taken(finding), _value_check(finding))
        case Kind.HANG | Kind.CRASH | Kind.DEVICE_FAULT:
            shown = f"this call should show: {failure.kind} {failure.detail}"
            return f'print({shown!r})\n{_CALL}\nprint("passes")'
        case Kind.WRONG_TYPE | Kind.WRONG_SHAPE | Kind.WRONG_DTYPE | Kind.WRONG_DEVICE:
            return _metadata_check(finding)
        case _:
            return _value_check(finding) if comparable else None


def _is_tuned(finding: Finding) -> bool:
    """Whether an autotuner's choice decides, which kfuzz alone makes for it."""
    return finding.failure.contract == "C-CMP-02" and not finding.declaration.configs


def _filled_otherwise(finding: Finding) -> bool:
    """Whether fresh memory held what torch's own switch does not fill it with."""
    unwritten = finding.failure.kind is Kind.UNWRITTEN
    return unwritten and finding.case.poison != "nan"


def _guarded(finding: Finding) -> str | None:
    """Return the check of a store outside an argument.

    None where the memory concerned is not an argument's, or the store lies
    farther away than a script can watch.
    """
    failure = finding.failure
    case = finding.case
    if failure.output not in (*case.tensors, *case.destinations):
        return None
    reach = [a.distance + a.count for a in failure.accesses if a.access != "load"]
    guard = max([GUARD, *reach])
    given = [d.spec() for d in case.destinations.values()]
    every = (*case.tensors.values(), *given)
    watched = sum(s.offset + s.span + 2 * guard for s in every)
    return _GUARDED.substitute(guard=guard) if watched <= MAX_WATCHED else None


def _metadata_check(finding: Finding) -> str:
    kind, message = finding.failure.kind, finding.failure.message
    pick = _picked(finding)
    count = _COUNT.search(message)
    if kind is Kind.WRONG_TYPE and count:
        wrong = (
            f"not isinstance(result, (tuple, list)) or len(result) != {int(count[1])}"
        )
    elif kind is Kind.WRONG_TYPE:
        wrong = (
            "not isinstance(result, torch.Tensor) or result.layout is not torch.strided"
        )
    else:
        # The message ends with what the operator asks for, as torch prints it.
        expected = message.rpartition("expected ")[2]
        found = {
            Kind.WRONG_SHAPE: "tuple(result.shape)",
            Kind.WRONG_DTYPE: "result.dtype",
            Kind.WRONG_DEVICE: "result.device",
        }[kind]
        wrong = f"str({found}) != {expected!r}"
    return (
        f"result = {_CALL}\n" + (f"{pick}\n" if pick else "") + f"fails = {wrong}\n"
        f'print("FAILS: " + {message!r} if fails else "passes")\n'
        "sys.exit(1 if fails else 0)"
    )


def _value_check(finding: Finding) -> str:
    failure = finding.failure
    index = failure.index or ()
    pick = _taken(finding)
    passes, code = "passes", 0
    if _filled_otherwise(finding):
        passes = f"passes on fresh NaN; check it with: kfuzz replay {finding.id}"
        code = 2
    return _VALUE.substitute(
        passes=repr(passes),
        code=code,
        pick=pick,
        index=repr(tuple(index)),
        label=repr(f"{failure.output}[{', '.join(map(str, index))}] ="),
        expected=_literal(failure.expected),
        low=_literal(failure.low),
        high=_literal(failure.high),
        zero=_SIGN if failure.got == 0 == failure.expected else "",
    )


def _taken(finding: Finding) -> str:
    """Return code that takes the result concerned, wherever the kernel left it."""
    if finding.declaration.inplace:
        names = list(finding.case.tensors)
        place = names.index(finding.declaration.inplace[0])
        return f"result = arguments[{place}] if result is None else result"
    return _picked(finding) or "result = arguments[0] if result is None else result"


def _picked(finding: Finding) -> str:
    """Return code that takes the result concerned out of several, or ""."""
    place = finding.failure.place
    return "" if place is None else f"result = result[{place}]"


def _literal(value: float | None) -> str:
    return "nan" if value is None else repr(float(value))
