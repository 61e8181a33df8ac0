"""What the running-error shadow finds suspicious and does not charge."""

from kfuzz.contracts.evidence import Evidence
from kfuzz.numerics.acceptance import tightened
from kfuzz.numerics.comparator.compare import compare


def suspicions(evidence: Evidence) -> tuple[str, ...]:
    """Return one line each; equal ones for equal causes, so that they can be counted.

    An operator without an error rule leaves results undecided; a result beyond the
    derived bound, and within the safety factor that only a violation exceeds, may be
    another form of the same function, or a fault.
    """
    lines: dict[str, None] = {}
    for name, accepted in (evidence.acceptance or {}).items():
        for operator in accepted.unknown:
            lines[f"{name} is undecided: no error rule for {operator}"] = None
        if accepted.safety == 1 or not evidence.base.comparable:
            continue
        y = evidence.base.outputs[name].unsqueeze(0)
        if bool(compare(y, tightened(accepted)).missed.any()):
            lines[
                f"{name} lies beyond the running-error bound, within "
                f"{accepted.safety:g} times of it"
            ] = None
    return tuple(lines)
