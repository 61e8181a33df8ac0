"""What an error lists as valid: the nearest first, and never hundreds."""

from kfuzz.core.errors import LISTED, suggestion


def test_a_few_are_all_listed() -> None:
    said = suggestion("sofmax", ["softmax", "matmul"])
    assert said == "did you mean 'softmax'? valid: matmul, softmax"


def test_of_very_many_the_nearest_are() -> None:
    names = [f"kernel_{i}.py" for i in range(300)] + ["softmax.py"]
    said = suggestion("sofmax.py", names)
    assert said.startswith("did you mean 'softmax.py'? valid: ")
    assert said.endswith("(301 in all)")
    assert said.count(",") <= LISTED


def test_of_very_many_the_first_are_where_none_is_near() -> None:
    said = suggestion("zzz", [f"kernel_{i}.py" for i in range(300)])
    assert said.startswith("valid: kernel_0.py, ")
    assert said.count(",") == LISTED
