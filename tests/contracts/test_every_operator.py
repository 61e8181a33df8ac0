"""What holds for every operator, tried on its correct and faulty implementations."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.helpers.impostors import (
    Subject,
    check_constant_impostors,
    check_correct,
    check_missing_specials,
    check_one_value_beyond,
    check_reference,
)
from tests.helpers.subjects import EVERY
from tests.helpers.tiers import usual


def each(
    wanted: Callable[[Subject, str], bool] = lambda subject, dtype: True,
) -> pytest.MarkDecorator:
    """Return the mark that runs a test on every operator and data type.

    Each push takes one data type of every other operator, the next one another.
    """
    made = []
    for number, (name, subject) in enumerate(EVERY.items()):
        dtypes = [d for d in subject.dtypes if wanted(subject, d)]
        made += [
            usual(name, dtype, is_usual=2 * i == number % (2 * len(dtypes)))
            for i, dtype in enumerate(dtypes)
        ]
    return pytest.mark.parametrize(("name", "dtype"), made)


@pytest.mark.slow
@each()
def test_correct_algorithms_are_admitted_on_every_family(name: str, dtype: str) -> None:
    subject = EVERY[name]
    if dtype != "float32":
        subject = replace(subject, correct={**subject.correct, **subject.of_units})
    check_correct(subject, dtype)


@each()
def test_the_reference_is_the_oracle_in_float64(name: str, dtype: str) -> None:
    subject = EVERY[name]
    if subject.of_blas:
        summed = tuple(s for s in subject.setups if 0 not in s.shapes[0])
        subject = replace(subject, setups=summed)
    check_reference(subject, dtype)


@each()
def test_impostors_are_refused(name: str, dtype: str) -> None:
    check_constant_impostors(EVERY[name], dtype)


@each(lambda subject, dtype: subject.has_ends)
def test_one_value_beyond_either_end_is_a_miss(name: str, dtype: str) -> None:
    check_one_value_beyond(EVERY[name], dtype)


@each(lambda subject, dtype: subject.has_ends)
def test_a_missing_nan_or_a_wrong_infinity_is_a_miss(name: str, dtype: str) -> None:
    check_missing_specials(EVERY[name], dtype)
