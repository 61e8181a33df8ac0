"""K-BLD-01: what a kernel launches builds for the declared GPUs within their limits."""

from kfuzz.contracts.evidence import Builds, Evidence
from kfuzz.contracts.language import ContractClass, Probe, Structure, Tolerance
from kfuzz.core.verdict import Failure, Kind

ID = "K-BLD-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return the first launch that does not build for a GPU."""
    for misfit in evidence.of(Builds).misfits:
        return Failure(
            contract=ID,
            kind=Kind.DOES_NOT_BUILD,
            detail=misfit.target,
            message=f"does not build for {misfit.target}: {misfit.kernel} "
            f"({misfit.file}:{misfit.line}): {misfit.why}; launched with "
            f"{misfit.given}",
        )
    return None


CLASS = ContractClass(
    id=ID,
    rank=105,
    level=3,
    title="builds for the declared GPUs within their limits",
    scope="Triton kernels, in runs that name GPUs by --also-compile",
    precondition="Every case on which the kernel returns, some of each shape.",
    postcondition="Each of its launches compiles for each of the GPUs, and asks for no "
    "more shared memory, threads and vector registers than a block may have there. "
    "Nothing is run there, and no result is judged.",
    tolerance=Tolerance(Structure.EXACT, "none", "a kernel fits or it does not"),
    sampled=(Probe.BUILD,),
    procedure="kfuzz's definition. In a process whose Triton compiles, the kernel is "
    "called on tensors without memory, and what it launches is compiled for each GPU "
    "by Triton itself, with the arguments specialised as its launches do. Shared "
    "memory and threads are read from the compiled kernel, vector registers from AMD's "
    "assembly; NVIDIA's assembler keeps to its limits or fails. Where Triton has no "
    "backend for a GPU, where the wrapper does not run without memory, and where "
    "nothing is launched, it is not judged.",
    kinds=(Kind.DOES_NOT_BUILD,),
    later_kinds=(Kind.DOES_NOT_BUILD,),
    symptom="detail is the GPU; names the limit and what is needed, or the "
    "compiler's message",
    unseen={Kind.DOES_NOT_BUILD: "what its kernels are compiled to for another GPU"},
    judge=judge,
    decides=lambda evidence: evidence.of(Builds).built > 0,
    of_values=False,
    by_occasion=True,
    of_some_kernels=True,
    on_request=True,
    of_candidates=False,
)
