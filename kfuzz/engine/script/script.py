"""A finding as one self-contained Python file: torch and the kernel, no kfuzz."""

import math
import os
from collections.abc import Mapping
from string import Template
from typing import Final

from kfuzz.core.dtypes import bits_to_number, unpack_bits
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Scalar, TensorSpec, is_dtype
from kfuzz.engine.script.checks import check
from kfuzz.engine.script.destinations import given
from kfuzz.engine.script.optional import gap
from kfuzz.engine.script.text import in_comment, in_docstring
from kfuzz.targets.load import resolve_one

# Details of K-GRD-01: how gradients are asked for.
_WAYS: Final = ("alone", "twice", "later", "again", "overwritten")

_TEMPLATE: Final = Template('''\
"""$id

$message

Needs torch and the kernel's own file. $codes
"""

import importlib
import importlib.util
import mmap
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
    poison = $poison if dtype.is_floating_point else 90
    nbytes = (offset + span) * dtype.itemsize
    if nbytes < 1 << 26:
        storage = torch.full((offset + span,), poison, dtype=dtype, device=DEVICE)
    else:  # address space of which only touched pages cost memory
        sharing = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, nbytes, flags=sharing | 0x4000)  # MAP_NORESERVE
        storage = torch.frombuffer(memory, dtype=torch.uint8).view(dtype).to(DEVICE)
    view = storage.as_strided(shape, strides, offset)
    for_copy = view
    for dim, (n, s) in enumerate(zip(shape, strides)):
        if s == 0 and n > 1:  # an expanded dimension holds its values once
            for_copy, values = for_copy.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    for_copy.copy_(values)
    return view


$load


def find(name):
    """Return the kernel of a name as it is bound, else the function of that name."""
    noted = getattr(sys.modules.get("kfuzz.contracts.binding"), "REGISTRY", {})
    every = [*vars(module).values(), *noted.get(module.__name__, ())]
    named = [v for v in every if getattr(v, "name", None) == name]
    return (named + [v for v in every if getattr(v, "__name__", None) == name])[0]


kernel = find($name)$asked
$takes
arguments = [
$arguments
]
scalars = $scalars
$given$some
$call
''')

_LOAD_FILE: Final = Template("""\
sys.path.insert(0, str(pathlib.Path($file).resolve().parent))
spec = importlib.util.spec_from_file_location("kernel_file", $file)
module = importlib.util.module_from_spec(spec)
sys.modules["kernel_file"] = module
spec.loader.exec_module(module)""")

_LOAD_MODULE: Final = Template("""\
sys.path.insert(0, ".")
module = importlib.import_module($module)""")


def script(finding: Finding, target: str = "") -> str:
    """Return a file that repeats a finding's minimal case.

    Run it from the project's folder; its one argument is the device. Findings come
    from strangers too: what one holds is a literal in it or part of a comment.

    Args:
        finding: the finding.
        target: the kernel to run in place of the stored one, as on the command line;
            "" for that one.

    Raises:
        UsageError: if the target names no one kernel.
        KfuzzError: if the finding holds no explicit values or no kernel home.
    """
    if not finding.case.pinned:
        raise KfuzzError(
            "the finding's values are not explicit",
            where=finding.id,
            fix=f"shrink it first: kfuzz shrink {finding.id}",
        )
    home = finding.target
    if home.reference:
        raise KfuzzError(
            "a candidate that nobody vouches for runs in its sandbox only",
            where=finding.id,
            fix=f"kfuzz replay {finding.id}",
        )
    if target:
        home = _given(target, home)
    if not home.file and not home.module:
        raise KfuzzError(
            "the finding's kernel has no importable home, or one outside the project",
            where=finding.id,
            fix="name it: --target path.py::name",
        )
    load = _LOAD_MODULE.substitute(module=repr(home.module))
    if home.file:
        load = _LOAD_FILE.substitute(file=repr(home.file))
    imports = "import pathlib\n" if home.file else ""
    out = finding.declaration.out
    if out:
        imports = f"import inspect\n{imports}"
    if finding.device == "interpret":
        imports = (
            "import os\n"
            + imports
            + '\nos.environ.setdefault("TRITON_INTERPRET", "1")\n'
        )
    call, codes = check(finding)
    takes, some = gap(finding)
    return _TEMPLATE.substitute(
        codes=codes,
        id=f"Finding {finding.id}",
        message=in_docstring(finding.failure.message),
        imports=imports,
        poison=_poison(finding),
        device="cuda" if finding.device == "cuda" else "cpu",
        load=load,
        name=repr(home.name),
        asked=_asked(finding),
        arguments="\n".join(
            f"    {_argument(spec)},  # {_summary(name, spec)}"
            for name, spec in finding.case.tensors.items()
        ),
        scalars=_scalars(
            {
                **finding.case.scalars,
                **finding.declaration.config(finding.case.config or 0),
            }
        ),
        takes=takes,
        given=f"{given(finding, _poison(finding))}\n\n" if out else "",
        some=some,
        call=call,
    )


def _given(target: str, home: Target) -> Target:
    """Return what a target on the command line names, its path as it was given."""
    source = resolve_one(target, home.name)
    file = "" if source.file is None else os.path.relpath(source.file)
    return Target(file, source.only[0], source.module)


def _poison(finding: Finding) -> str:
    if finding.case.poison != "finite":
        return 'float("nan")'
    narrow = {"float16": 2.0**15, "float8_e5m2": 2.0**15, "float8_e4m3fn": 2.0**8}
    dtype = finding.case.data.dtype
    return repr(narrow.get(dtype, 2.0**100))


def _asked(finding: Finding) -> str:
    """Return what asks for gradients in the way that shows the failure, if one does."""
    failure = finding.failure
    if failure.contract != "K-GRD-01" or failure.detail not in _WAYS:
        return ""
    return f".function.asked({failure.detail!r}, {failure.output[1:]!r})"


def _scalars(scalars: Mapping[str, Scalar]) -> str:
    items = (f"{name!r}: {_scalar(value)}" for name, value in scalars.items())
    return f"{{{', '.join(items)}}}"


def _scalar(value: Scalar) -> str:
    if is_dtype(value):
        return f"torch.{value}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


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
    return f"{in_comment(name)}: {spec.dtype}{list(spec.shape)} [{shown}{more}]"
