"""How long sums are kept: names and constructors of the accumulation models.

A declaration holds the canonical text, "float32" or "splitk(4, bfloat16)"; what the
models mean for an error bound is `kfuzz.numerics.accumulation.Accumulation`.
"""

import re
from dataclasses import dataclass
from typing import Final

from kfuzz.core.errors import BindingError, suggestion

NAMED: Final = (
    "float64", "float32", "tf32", "tf32x3", "float16", "bfloat16",
    "any_tensor_core", "compensated",
)  # fmt: skip
# Formats in which parts of a sum are stored and added.
STORED: Final = ("float64", "float32", "float16", "bfloat16")
# No tree is higher, and no kernel splits a sum into more parts.
MOST: Final = 1 << 24
_SHAPES: Final = {
    "blocked": "blocked(h), h the height of the tree",
    "splitk": "splitk(n, dtype), n parts stored in dtype",
    "atomic": "atomic(dtype), terms added in dtype",
}
_CALL: Final = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*\Z", re.ASCII)


@dataclass(frozen=True)
class Accumulator:
    """One accumulation model; `str` gives the canonical text.

    Attributes:
        model: one of `NAMED`, or "blocked", "splitk", "atomic".
        count: height of the tree, or number of parts; 0 where there is neither.
        dtype: format in which parts are stored; "" where none is.
    """

    model: str
    count: int = 0
    dtype: str = ""

    def __str__(self) -> str:
        """Return the text that a declaration holds."""
        arguments = [str(self.count)] * bool(self.count) + [self.dtype] * bool(
            self.dtype
        )
        return f"{self.model}({', '.join(arguments)})" if arguments else self.model

    @classmethod
    def parse(cls, claim: object, *, where: str = "") -> "Accumulator":
        """Return the model that a claim names.

        Args:
            claim: an `Accumulator`, or its text.
            where: the kernel concerned, for error messages.

        Raises:
            BindingError: if it names no model, or one with wrong arguments.
        """
        text = str(claim) if isinstance(claim, Accumulator) else claim
        if isinstance(text, str) and text in NAMED:
            return cls(text)
        call = _CALL.match(text) if isinstance(text, str) else None
        if call is None or call[1] not in _SHAPES:
            shown = call[1] if call else str(claim)
            raise BindingError(
                f"accumulator={claim!r:.60} is not a declaration",
                where=where,
                fix=_suggested(shown),
            )
        given = [a.strip() for a in call[2].split(",")]
        try:
            match call[1], given:
                case "blocked", [height]:
                    return blocked(int(height))
                case "splitk", [parts, dtype]:
                    return splitk(int(parts), dtype)
                case "atomic", [dtype]:
                    return atomic(dtype)
                case _:
                    raise ValueError
        except BindingError as error:
            raise BindingError(error.what, where=where, fix=error.fix) from None
        except ValueError:
            raise BindingError(
                f"accumulator={claim!r:.60} has wrong arguments",
                where=where,
                fix=f"write {_SHAPES[call[1]]}",
            ) from None


def blocked(height: int) -> Accumulator:
    """Sums in float32 along a tree in which a term meets `height` additions at most.

    Serial in blocks of b, then a tree over K/b blocks: b + ceil(log2(K/b)).

    Raises:
        BindingError: if the height is no positive integer.
    """
    return Accumulator("blocked", _counted("blocked", height))


def splitk(parts: int, dtype: str) -> Accumulator:
    """Sums in float32 over `parts` parts, each stored in `dtype` and added there.

    Raises:
        BindingError: if the number is no positive integer, or no part is stored
            in such a format.
    """
    return Accumulator("splitk", _counted("splitk", parts), _stored("splitk", dtype))


def atomic(dtype: str) -> Accumulator:
    """Sums whose terms, or partial sums, are added to memory of `dtype`.

    Raises:
        BindingError: if nothing is added in such a format.
    """
    return Accumulator("atomic", dtype=_stored("atomic", dtype))


def _counted(model: str, count: object) -> int:
    good = isinstance(count, int) and not isinstance(count, bool)
    if not good or not 1 <= int(str(count)) <= MOST:
        raise BindingError(
            f"{model}: {count!r:.40} is no number from 1 to {MOST}",
            fix=f"write {_SHAPES[model]}",
        )
    return int(str(count))


def _stored(model: str, dtype: object) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in STORED:
        raise BindingError(
            f"{model}: sums are not stored in {name!r:.40}",
            fix=suggestion(name, STORED),
        )
    return name


def _suggested(claim: str) -> str:
    short = re.fullmatch(r"(b?)(?:fp|f|float)(\d+)", claim.lower().replace("_", ""))
    if short is not None:
        claim = f"{'bfloat' if short[1] else 'float'}{short[2]}"
    near = suggestion(claim, (*NAMED, *_SHAPES))
    return near + "; with arguments: " + ", ".join(_SHAPES.values())
