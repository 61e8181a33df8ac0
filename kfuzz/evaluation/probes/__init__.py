"""The probes that a case is put to which conforms so far."""

from typing import Final

from kfuzz.evaluation.diagnosis import Step
from kfuzz.evaluation.probes import building, calls, repeats

FURTHER: Final[tuple[tuple[Step, ...], ...]] = (
    (calls.STEP, building.STEP),
    (calls.SHORTER_STEP,),
    (building.OPCHECKING_STEP,),
    (repeats.GRADIENTS_STEP,),
    (repeats.STEP, repeats.BATCHES_STEP, calls.OVERLAPPING_STEP, calls.MEASURING_STEP),
    (calls.REPLAYING_STEP,),
    (repeats.SCALING_STEP, repeats.PERMUTING_STEP),
)
"""In groups: after each the case is judged."""
