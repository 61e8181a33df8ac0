"""What a platform's own kernels claim, by device and version, and where they err.

A claim says with its source how a kernel computes; a defect is a true finding, which
no claim may hide. Both may hold for one device or all, and from one version up to
another. `CLAIMS.md` and `DEFECTS.md` say them.
"""

import ast
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.prose import entries
from kfuzz.core.declaration import ShapeClass
from kfuzz.core.errors import BindingError

DEVICES: Final = ("cpu", "cuda")
SHORT: Final = ("float16", "bfloat16")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def _pads_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 by AVX-512 without its own instructions.

    `ONEDNN_MAX_CPU_ISA` limits oneDNN to less than the processor has.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    if limit in ("AVX512_CORE", "AVX512_CORE_VNNI"):
        return _has(torch.cpu, "_is_avx512_supported")
    if limit.startswith(("SSE", "AVX2", "AVX512_CORE_")) or limit == "AVX":
        return False
    has_wide = _has(torch.cpu, "_is_avx512_supported")
    return has_wide and not _has(torch.cpu, "_is_avx512_bf16_supported")


def _processor() -> str:
    """Return what the system says of the first processor; "" where it says nothing."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return ""


def _has(owner: object, name: str) -> bool:
    """Whether a processor has something; True where torch cannot tell."""
    asked = getattr(owner, name, None)
    return asked is None or bool(asked())


# What a processor may have that others lack, and how to know. Nothing is computed to
# find out: a process that has computed with OpenMP cannot be forked.
PROCESSORS: Final[dict[str, Callable[[], bool]]] = {
    "AMX": lambda: _has(torch.cpu, "_is_amx_tile_supported"),
    "AVX-512 without BF16": _pads_bfloat16,
    "Intel AVX-512": lambda: (
        _has(torch.cpu, "_is_avx512_supported") and "GenuineIntel" in _processor()
    ),
}


@dataclass(frozen=True)
class Claim:
    """One declaration of a kernel, with its ground.

    Attributes:
        keyword: the declaration's name, see contracts/README.md.
        value: what is declared.
        source: file or document that says so, or how it was measured.
        device: "cpu" or "cuda", "" for both.
        since: first version, "2.12", for which it holds; "" for the oldest.
        until: first version for which it no longer does; "" for none.
    """

    keyword: str
    value: Any
    source: str
    device: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True)
class Defect:
    """A true finding in the platform: expected where kernels declare honestly.

    Attributes:
        contract: the class that it breaks.
        kernels: names of the kernels that show it; a function of torch's, such as
            "torch.erf", where no operator speaks of it.
        where: the inputs that show it.
        evidence: what comes out, and how it was seen.
        excuse: claims under which nothing else is found in these kernels; empty
            where their own claims leave these inputs undecided.
        processor: what the processor must have to show it, a key of `PROCESSORS`; ""
            where the evidence tells all there is to say.
        device: "cpu" or "cuda", "" for both.
        since: first version, "2.12", that has it; "" for the oldest.
        until: first version that no longer has it; "" for none.
    """

    contract: str
    kernels: tuple[str, ...]
    where: str
    evidence: str
    excuse: tuple[tuple[str, Any], ...] = ()
    processor: str = ""
    device: str = ""
    since: str = ""
    until: str = ""


def _kernels(items: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(items["Kernels"].split(", "))


def _claimed(items: Mapping[str, str], part: str) -> tuple[str, Any]:
    """Return the keyword and the value that a part of an entry gives."""
    keyword, _, value = items[part].partition("=")
    return keyword, ast.literal_eval(value)


def _where(items: Mapping[str, str]) -> dict[str, str]:
    """Return on which device and in which versions an entry holds."""
    return {name: items.get(name.title(), "") for name in ("device", "since", "until")}


def _claims(part: str) -> list[tuple[tuple[str, ...], Claim]]:
    """Return what the page claims under a part, each with its kernels."""
    return [
        (_kernels(x), Claim(*_claimed(x, part), x["Source"], **_where(x)))
        for x in entries("platform/CLAIMS.md")
        if part in x
    ]


_CLAIMS: Final = _claims("Declares")
_NARROW: Final = _claims("In 16 bits")
DEFECTS: Final = tuple(
    Defect(
        contract,
        _kernels(x),
        x["Inputs"],
        x["Evidence"],
        excuse=(_claimed(x, "Excused by"),) if "Excused by" in x else (),
        processor=x.get("Processor", ""),
        **_where(x),
    )
    for x in entries("platform/DEFECTS.md")
    for contract in x["Breaks"].split(", ")
)
"""True findings in torch; each is expected where kernels declare honestly."""


@dataclass(frozen=True)
class Implementation:
    """One of the platform's own kernels.

    Attributes:
        name: the kernel's name.
        operator: what it computes.
        function: what is called.
        claims: its declarations on every device and version.
        devices: where it is bound at all.
    """

    name: str
    operator: Operator
    function: Callable[..., Any]
    claims: tuple[Claim, ...]
    devices: tuple[str, ...]

    def declared(self, device: str, version: str) -> dict[str, Any]:
        """Return its claims on a device in a version, ready for `kfuzz.kernel`.

        Raises:
            BindingError: if two claims of one keyword hold.
        """
        found: dict[str, Any] = {}
        for claim in self.claims:
            if not holds(claim, device, version):
                continue
            if claim.keyword in found:
                raise BindingError(
                    f"two claims of {claim.keyword}= hold on {device} in {version}",
                    where=f"kernel {self.name}",
                )
            found[claim.keyword] = claim.value
        return found


# By name, in order of definition.
IMPLEMENTATIONS: Final[dict[str, Implementation]] = {}


def implements(
    operator: Operator, *, name: str = "", devices: tuple[str, ...] = DEVICES
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function among the platform's kernels; as a decorator, or called.

    Where the page makes a claim of it in 16 bits, it is bound for float32 alone on that
    device, and for each 16-bit format by a kernel of its own, named after both.

    Args:
        operator: what it computes.
        name: the kernel's name; the function's own by default.
        devices: where it is bound.

    Raises:
        BindingError: if there is a kernel of that name.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        label = name or function.__name__
        own = tuple(claim for kernels, claim in _CLAIMS if label in kernels)
        narrow = next((claim for names, claim in _NARROW if label in names), None)
        if narrow is None:
            _enter(Implementation(label, operator, function, own, devices))
            return function
        single = replace(narrow, keyword="dtypes", value="float32")
        _enter(Implementation(label, operator, function, (*own, single), devices))
        for dtype in SHORT:
            formats = replace(single, value=dtype, device="")
            sums = replace(narrow, value=narrow.value.format(dtype=dtype), device="")
            claims, devices_of = (*own, formats, sums), (narrow.device,)
            made = Implementation(
                f"{label}_{dtype}", operator, function, claims, devices_of
            )
            _enter(made)
        return function

    return enter


def _enter(made: Implementation) -> None:
    if made.name in IMPLEMENTATIONS:
        raise BindingError(f"the platform has two kernels named {made.name!r}")
    IMPLEMENTATIONS[made.name] = made


def as_written(operator: Operator, *stores: str) -> None:
    """Enter the steps of an operator's oracle in float32: torch has no kernel of it.

    Args:
        operator: what it computes.
        stores: for each result the argument or scalar that gives its dtype, or the
            dtype; "" where it stays as it is. By default `dtype`, else the first
            floating argument, gives all.
    """
    oracle, names = operator.oracle, tuple(operator.tensors)
    if not stores:
        lead = next(n for n, p in operator.tensors.items() if p.kind == "float")
        named = "dtype" if "dtype" in operator.scalars else lead
        stores = (named,) * len(operator.outputs)

    def steps(*tensors: torch.Tensor | None, **scalars: Any) -> Any:
        known: dict[str, Any] = {n: p.default for n, p in operator.scalars.items()}
        known |= scalars
        returned = oracle(*map(_in_float32, tensors), **known)
        results = returned if isinstance(returned, tuple) else (returned,)
        known |= {n: x.dtype for n, x in zip(names, tensors, strict=False)
                  if x is not None}  # fmt: skip
        dtypes = (known.get(s, getattr(torch, s, None)) for s in stores)
        pairs = zip(results, dtypes, strict=True)
        # A result may be an argument: without steps a state stays what it was.
        made = tuple(y.to(y.dtype if d is None else d, copy=True) for y, d in pairs)
        return made if len(made) > 1 else made[0]

    steps.__signature__ = inspect.signature(oracle)  # type: ignore[attr-defined]
    implements(operator, name=f"torch_{operator.name}")(steps)


def _in_float32(x: torch.Tensor | None) -> torch.Tensor | None:
    """Return floats in float32, and integers in int64, as oracles take them."""
    if x is None or x.dtype is torch.bool:
        return x
    return x.float() if x.is_floating_point() else x.long()


def holds(entry: Claim | Defect, device: str, version: str) -> bool:
    """Whether a claim or defect concerns a device and a version of torch."""
    if entry.device and entry.device != device:
        return False
    number = parsed(version)
    late_enough = not entry.since or number >= parsed(entry.since)
    return late_enough and (not entry.until or number < parsed(entry.until))


def parsed(version: str) -> tuple[int, int]:
    """Return (major, minor) of a version such as "2.13.0+cu130".

    Raises:
        BindingError: if it does not begin with two numbers.
    """
    found = _VERSION.match(version)
    if found is None:
        raise BindingError(f"{version!r:.40} is no version of torch")
    return int(found[1]), int(found[2])


def joined(claims: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return claims with others: both restrictions of shapes, else the others' word."""
    found = {**claims, **more}
    if "shape_class" in claims and "shape_class" in more:
        shapes = ShapeClass.parse(claims["shape_class"])
        both = shapes.both(ShapeClass.parse(more["shape_class"]))
        found["shape_class"] = both.expression
    return found


def excuses(
    name: str, defects: Iterable[Defect], device: str, version: str
) -> dict[str, Any]:
    """Return the claims under which a kernel shows none of its listed defects.

    Those that this machine's processor cannot show need none.
    """
    found: dict[str, Any] = {}
    for defect in defects:
        if name not in defect.kernels or not holds(defect, device, version):
            continue
        if defect.processor and not PROCESSORS[defect.processor]():
            continue
        found = joined(found, dict(defect.excuse))
    return found
