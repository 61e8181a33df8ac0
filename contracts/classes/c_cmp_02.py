"""C-CMP-02: every configuration of a kernel keeps the contract."""

from typing import TYPE_CHECKING

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Protocol,
    ViolationSignature,
)
from kfuzz.core.verdict import Failure

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "C-CMP-02"
# One configuration is the kernel itself.
_SEVERAL = 2


def judge(view: "View") -> Failure | None:
    """Return a miss that another configuration of the kernel does not have."""
    if view.miss is None or not view.base.config:
        return None
    # What is right now and then needs no other configuration for it.
    if Probe.REPEAT in view.runs and view.miss_of(Probe.REPEAT) is None:
        return None
    good = [name for name, conforms in view.configs.items() if conforms]
    if not good:
        return None
    faulty, other = _apart(view.base.config, good[0])
    why = f"with {faulty}; with {other} the result is admitted"
    return value_failure(ID, view.miss, why=why)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return two configurations in words, without what they have in common."""
    left, right = one.split(", "), other.split(", ")
    ours = ", ".join(part for part in left if part not in right)
    theirs = ", ".join(part for part in right if part not in left)
    return ours or one, theirs or other


CLASS = ContractClass(
    id=ID,
    title="every configuration keeps the contract",
    scope="kernels with configs=, and autotuned kernels in Triton's interpreter",
    precondition="Cases that run one of several configurations.",
    postcondition="The result lies in the operator's acceptance whichever runs.",
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(Probe.REPEAT, Probe.OTHER_CONFIG),
        confirmation="reproduces",
        text="Each case runs one configuration, which follows from its seed: a mapping "
        "of `configs=`, passed as keywords, or, where nothing can be timed, one that "
        "`@triton.autotune` lists and its pruning leaves. Where the result misses, "
        "the case runs under up to eight others; if at least one conforms, the miss "
        "belongs here. kfuzz's definition, of which this is the part for the CPU: "
        "first against later calls of an autotuner, and what it restores between "
        "the configurations that it times, are not judged.",
    ),
    signature=ViolationSignature(
        kinds=(),
        text="any kind of wrong value; names the faulty configuration and one that "
        "is right on the same case",
    ),
    judge=judge,
    decides=lambda view: view.decided > 0 and view.base.configs >= _SEVERAL,
)
