"""What a finding may call things: strangers write findings too."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from kfuzz.core.finding import ATEN, Finding, Mark, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Signature


def unsafe_reference(finding: Finding) -> tuple[str, str] | None:
    """Return (field, why) where a name or path must not be trusted."""
    target, signature = finding.target, finding.signature
    path = PurePosixPath(target.file)
    if path.is_absolute() or ".." in path.parts or "\\" in target.file:
        return "target.file", (
            f"{target.file!r:.80} leads outside the project; it must be relative"
        )
    module = target.module.removeprefix(ATEN)
    parts = module.split(".") if target.module else []
    if not all(part.isidentifier() for part in parts):
        return "target.module", f"{target.module!r:.80} is not a dotted module name"
    mark = finding.mark or Mark("")
    if mark.link and not mark.link.startswith(("http://", "https://")):
        return "mark.link", f"{mark.link!r:.80} is no http or https address"
    claims = finding.declaration
    return _unprintable(
        (
            *_texts(target, "target"),
            *_texts(signature, "signature"),
            *_texts(mark, "mark"),
            ("failure.output", finding.failure.output),
            *_names_of(finding.case, "case"),
            *_names_of(finding.first, "first"),
            *(("declaration.inplace", name) for name in claims.inplace),
            *(("declaration.out", name) for name in claims.out),
            *(("declaration.configs", n) for c in claims.configs for n in c),
        )
    )


def unsafe_name(case: Case) -> tuple[str, str] | None:
    """Return (field, why) where a case calls a part of it what must not be trusted."""
    return _unprintable(_names_of(case, "case"))


def _unprintable(texts: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first (field, why) of texts that more than print, as ends of lines."""
    for field, text in texts:
        if not text.isprintable():
            return field, f"{text!r:.80} holds control characters"
    return None


def _texts(owner: Target | Signature | Mark, label: str) -> list[tuple[str, str]]:
    found = vars(owner).items()
    return [(f"{label}.{k}", v) for k, v in found if isinstance(v, str)]


def _names_of(case: Case, label: str) -> Iterator[tuple[str, str]]:
    """Return what a case calls its parts: one line each, whatever that is written in.

    They need not be identifiers: an operator names its arguments and results as it
    likes.
    """
    for name, spec in case.tensors.items():
        yield f"{label}.tensors", name
        yield f"{label}.tensors.below", spec.below
        yield f"{label}.tensors.domain", spec.domain
        for axis in spec.axes:
            yield f"{label}.tensors.axes", axis
    for name in case.scalars:
        yield f"{label}.scalars", name
    for name in case.destinations:
        yield f"{label}.destinations", name
