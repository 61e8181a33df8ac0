"""What tests know of each operator: correct and faulty implementations of it."""

from typing import Final

from tests.helpers.impostors import Subject
from tests.helpers.subjects import (
    basic,
    elementwise,
    indexing,
    norms,
    products,
    quantization,
    reductions,
    rope,
)

EVERY: Final[dict[str, Subject]] = {
    **basic.SUBJECTS,
    **elementwise.SUBJECTS,
    **indexing.SUBJECTS,
    **norms.SUBJECTS,
    **products.SUBJECTS,
    **quantization.SUBJECTS,
    **reductions.SUBJECTS,
    "rope": rope.SUBJECT,
}
