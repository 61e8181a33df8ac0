"""Proofs as text."""

from collections.abc import Iterable, Iterator

from kfuzz.core.event import KernelFinished
from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.report.layout import table
from kfuzz.report.text import one_line


def proof_lines(proof: KernelProof, *, premises: bool = False) -> Iterator[str]:
    """Yield what is proved of a kernel, a line for each property."""
    yield from table([(p.name, _answer(p)) for p in proof.properties])
    if proof.withdrawn:
        yield f"a proof for all sizes is withdrawn: {one_line(proof.withdrawn)}"
    if not premises:
        return
    for kernel, texts in proof.premises.items():
        yield f"premises of {one_line(kernel)}:"
        yield from (f"  {one_line(text)}" for text in texts)


def proof_summary(proof: KernelProof) -> str:
    """Return one line on what is proved of a kernel."""
    made = [
        (proof.count(answer), answer)
        for answer in (Proven.ALL_SIZES, Proven.LAUNCH, Proven.REFUTED, Proven.OPEN)
    ]
    texts = [f"{count} {answer}" for count, answer in made if count]
    text = f"of {len(proof.properties)} properties {', '.join(texts)}"
    if proof.unwatched:
        every = proof.watched + proof.unwatched
        text += f"; launches of {proof.unwatched} of {every} structures went unwatched"
    return f"{text}; {one_line(proof.withdrawn)}" if proof.withdrawn else text


def proof_summaries(kernels: Iterable[KernelFinished]) -> Iterator[tuple[str, str]]:
    """Yield the name of each kernel of which something is proved, and that line."""
    for kernel in kernels:
        if kernel.proof is not None:
            yield kernel.kernel, proof_summary(kernel.proof)


def _answer(found: ProvenProperty) -> str:
    if found.answer is Proven.ALL_SIZES:
        return str(found.answer)
    place = f"line {found.line}: " if found.line else ""
    text = f"{found.answer}: {place}{one_line(found.why)}"
    if found.launch:
        text = (
            f"{found.answer}: {one_line(found.launch)} ({place}{one_line(found.why)})"
        )
    if found.finding:
        text += f" ({found.finding})"
    return text
