"""A finding as one self-contained Python file: torch and the kernel, no kfuzz."""

from string import Template
from typing import Final

from kfuzz.core.dtypes import bits_to_number, unpack_bits
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import TensorSpec
from kfuzz.core.verdict import Kind

_TEMPLATE: Final = Template('''\
"""$id

$message

Needs torch and the kernel's own file. Exit code 1: it still fails; 0: it passes.
"""

import importlib
import importlib.util
import sys
$imports
import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "$device"


def tensor(shape, strides, offset, dtype, data):
    """Rebuild one argument: `data` are its elements' bytes in C order."""
    raw = bytearray(bytes.fromhex(data))
    flat = torch.tensor(list(raw), dtype=torch.uint8)
    values = flat.view(dtype).reshape(shape).to(DEVICE)
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if values.numel() else 0
    # What lies between the elements must not look like data.
    storage = torch.full((offset + span,), $poison, dtype=dtype, device=DEVICE)
    view = storage.as_strided(shape, strides, offset)
    for_copy = view
    for dim, (n, s) in enumerate(zip(shape, strides)):
        if s == 0 and n > 1:  # an expanded dimension holds its values once
            for_copy, values = for_copy.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    for_copy.copy_(values)
    return view


$load

arguments = [
$arguments
]
scalars = $scalars

$call
''')

_LOAD_FILE: Final = Template("""\
sys.path.insert(0, str(pathlib.Path("$file").resolve().parent))
spec = importlib.util.spec_from_file_location("kernel_file", "$file")
module = importlib.util.module_from_spec(spec)
sys.modules["kernel_file"] = module
spec.loader.exec_module(module)""")

_LOAD_MODULE: Final = Template("""\
sys.path.insert(0, ".")
module = importlib.import_module("$module")""")

_VALUE: Final = Template("""\
result = kernel(*arguments, **scalars)
$pick
got = result[$index].item() if result.dim() else result.item()
print("$output[$shown] =", got)
print("expected $expected, admissible $low to $high")
nan = float("nan")
inf = float("inf")
low, high, expected = $low, $high, $expected
if expected != expected:
    fails = got == got
elif got != got:
    fails = True
else:
    fails = not low <= got <= high
print("FAILS" if fails else "passes")
sys.exit(1 if fails else 0)""")


def script(finding: Finding) -> str:
    """Return a file that repeats a finding's minimal case.

    Run it from the project's folder; its one argument is the device.

    Raises:
        KfuzzError: if the finding holds no explicit values or no kernel home.
    """
    if not finding.case.pinned:
        raise KfuzzError(
            "the finding's values are not explicit",
            where=finding.id,
            fix=f"shrink it first: kfuzz shrink {finding.id}",
        )
    target = finding.target
    if not target.file and not target.module:
        raise KfuzzError("the kernel has no importable home", where=finding.id)
    load = _LOAD_MODULE.substitute(module=target.module)
    if target.file:
        load = _LOAD_FILE.substitute(file=target.file)
    load += f"\nkernel = {_lookup(finding)}"
    imports = "import pathlib\n" if target.file else ""
    if finding.device == "interpret":
        imports = (
            "import os\n"
            + imports
            + '\nos.environ.setdefault("TRITON_INTERPRET", "1")\n'
        )
    return _TEMPLATE.substitute(
        id=f"Finding {finding.id}",
        message=finding.failure.message.replace("\\", "\\\\").replace('"""', "'''"),
        imports=imports,
        poison=_poison(finding),
        device="cuda" if finding.device == "cuda" else "cpu",
        load=load,
        arguments="\n".join(
            f"    {_argument(spec)},  # {_summary(name, spec)}"
            for name, spec in finding.case.tensors.items()
        ),
        scalars=repr(dict(finding.case.scalars)),
        call=_call(finding),
    )


def _poison(finding: Finding) -> str:
    if finding.case.poison != "finite":
        return 'float("nan")'
    narrow = {"float16": 2.0**15, "float8_e5m2": 2.0**15, "float8_e4m3fn": 2.0**8}
    dtype = next(iter(finding.case.tensors.values())).dtype
    return repr(narrow.get(dtype, 2.0**100))


def _lookup(finding: Finding) -> str:
    """Return an expression that finds the kernel in its module by bound name."""
    name = finding.target.name
    return (
        f"next(v for v in vars(module).values() "
        f"if getattr(v, 'name', None) == {name!r} or "
        f"getattr(v, '__name__', None) == {name!r})"
    )


def _argument(spec: TensorSpec) -> str:
    assert spec.values is not None
    return (
        f"tensor({spec.shape!r}, {spec.element_strides!r}, {spec.offset}, "
        f"torch.{spec.dtype}, {spec.values.hex()!r})"
    )


def _summary(name: str, spec: TensorSpec) -> str:
    assert spec.values is not None
    patterns = unpack_bits(spec.values, spec.dtype)
    shown = ", ".join(f"{bits_to_number(p, spec.dtype):.9g}" for p in patterns[:8])
    more = ", …" if len(patterns) > 8 else ""
    return f"{name}: {spec.dtype}{list(spec.shape)} [{shown}{more}]"


def _call(finding: Finding) -> str:
    failure = finding.failure
    if failure.kind is Kind.UNWRITTEN:
        # torch's own switch fills fresh memory with NaN.
        return (
            "torch.use_deterministic_algorithms(True, warn_only=True)\n"
            "torch.utils.deterministic.fill_uninitialized_memory = True\n"
            + _value_check(finding, low=failure.low, high=failure.high)
        )
    if failure.index is not None and failure.expected is not None:
        if failure.kind is Kind.INPUT_MODIFIED:
            return _modified_check()
        return _value_check(finding, low=failure.low, high=failure.high)
    if failure.kind is Kind.INPUT_MODIFIED:
        return _modified_check()
    if failure.kind is Kind.RAISES:
        return (
            "try:\n    kernel(*arguments, **scalars)\n"
            "except Exception as error:\n"
            '    print("FAILS:", type(error).__name__, error)\n    sys.exit(1)\n'
            'print("passes")'
        )
    if failure.kind in (Kind.HANG, Kind.CRASH, Kind.DEVICE_FAULT):
        return (
            f'print("this call should show: {failure.kind} {failure.detail}")\n'
            "kernel(*arguments, **scalars)\n"
            'print("passes")'
        )
    return _metadata_check(finding)


def _metadata_check(finding: Finding) -> str:
    kind, message = finding.failure.kind, finding.failure.message
    if kind is Kind.WRONG_TYPE:
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
        "result = kernel(*arguments, **scalars)\n"
        f"fails = {wrong}\n"
        f'print("FAILS: " + {message!r} if fails else "passes")\n'
        "sys.exit(1 if fails else 0)"
    )


def _modified_check() -> str:
    return (
        "def bits(a):\n"
        "    return a.contiguous().reshape(-1).view(torch.uint8)\n\n\n"
        "before = [a.clone() for a in arguments]\n"
        "kernel(*arguments, **scalars)\n"
        "changed = [\n"
        "    not torch.equal(bits(a), bits(b)) for a, b in zip(arguments, before)\n"
        "]\n"
        'print("FAILS: an input changed" if any(changed) else "passes")\n'
        "sys.exit(1 if any(changed) else 0)"
    )


def _value_check(finding: Finding, *, low: float | None, high: float | None) -> str:
    failure = finding.failure
    index = failure.index or ()
    pick = "result = arguments[0] if result is None else result"
    if finding.declaration.inplace:
        names = list(finding.case.tensors)
        place = names.index(finding.declaration.inplace[0])
        pick = f"result = arguments[{place}] if result is None else result"
    return _VALUE.substitute(
        pick=pick,
        index=repr(tuple(index)),
        output=failure.output,
        shown=", ".join(map(str, index)),
        expected=_literal(failure.expected),
        low=_literal(low),
        high=_literal(high),
    )


def _literal(value: float | None) -> str:
    return "nan" if value is None else repr(float(value))
