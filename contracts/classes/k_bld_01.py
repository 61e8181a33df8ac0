"""K-BLD-01: what a kernel launches builds for the declared GPUs within their limits."""

from kfuzz.contracts.evidence import Builds, Evidence
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return the first launch that does not build for a GPU."""
    for misfit in evidence.of(Builds).misfits:
        return Failure(
            contract="K-BLD-01",
            kind=Kind.DOES_NOT_BUILD,
            detail=misfit.target,
            message=f"does not build for {misfit.target}: {misfit.kernel} "
            f"({misfit.file}:{misfit.line}): {misfit.why}; launched with "
            f"{misfit.given}",
        )
    return None


K_BLD_01 = ContractClass(
    **promised("K-BLD-01", Structure.EXACT),
    rank=105,
    level=3,
    sampled=(Probe.BUILD,),
    kinds=(Kind.DOES_NOT_BUILD,),
    later_kinds=(Kind.DOES_NOT_BUILD,),
    unseen={Kind.DOES_NOT_BUILD: "what its kernels are compiled to for another GPU"},
    judge=judge,
    decides=lambda evidence: evidence.of(Builds).built > 0,
    of_values=False,
    by_occasion=True,
    of_some_kernels=True,
    on_request=True,
    of_candidates=False,
)
