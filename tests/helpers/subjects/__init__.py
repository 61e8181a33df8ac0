"""What tests know of each operator: correct and faulty implementations of it."""

from typing import Final

from tests.helpers.impostors import Subject
from tests.helpers.subjects import (
    elementwise,
    first,
    indexing,
    norms,
    products,
    quantization,
    reductions,
    rope,
)

EVERY: Final[dict[str, Subject]] = {
    **first.SUBJECTS,
    **elementwise.SUBJECTS,
    **indexing.SUBJECTS,
    **norms.SUBJECTS,
    **products.SUBJECTS,
    **quantization.SUBJECTS,
    **reductions.SUBJECTS,
    "rope": rope.SUBJECT,
}
