"""Names of results: "y"; of a list "parts[]" of tensors "parts[0]", "parts[1]", ….

Lists may hold lists: "state[0][1]". Python takes these names for expressions too.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

LIST: Final = "[]"
"""What follows the name of an output that is a list of tensors."""


class OtherForm(Exception):
    """Results are not nested as they should be.

    Attributes:
        what: how they are.
        name: the list concerned; "" for all of them.
    """

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.name = name


def output_of(name: str) -> str:
    """Return the name of the output that a result belongs to, without brackets."""
    return name.partition("[")[0]


def path_of(name: str) -> list[int]:
    """Return at which places of a list, and of the lists in it, a result is."""
    return [int(place) for place in re.findall(r"\[([0-9]+)\]", name)]


def outputs_of(names: Collection[str]) -> list[str]:
    """Return the outputs that results belong to, as operators declare them."""
    return list(dict.fromkeys(output_of(n) + LIST * ("[" in n) for n in names))


def named(returned: object, outputs: Sequence[str]) -> dict[str, object]:
    """Return what a reference returned by name.

    Args:
        returned: one result, or a tuple of several.
        outputs: as the operator declares them: "y", "parts[]".

    Raises:
        OtherForm: if it is not one result for each output.
        ValueError: if a list is empty: how many results there are says none of them.
    """
    items = _items(returned, outputs)
    if len(items) != len(outputs):
        what = f"{len(items)} result{'s' * (len(items) != 1)}"
        raise OtherForm(f"{what} for the outputs {', '.join(outputs)}")
    made: dict[str, object] = {}
    for output, item in zip(outputs, items, strict=True):
        is_list = output.endswith(LIST)
        if is_list and not isinstance(item, tuple | list):
            raise OtherForm(f"{described(item)} for the list {output}")
        made.update(_leaves(output_of(output), item) if is_list else [(output, item)])
    return made


def in_place(returned: object, names: Collection[str]) -> dict[str, object]:
    """Return what a kernel returned by the names of the results that it should have.

    Raises:
        OtherForm: if it is nested otherwise; with the output, "" for all of them.
    """
    outputs = outputs_of(names)
    items = _items(returned, outputs)
    if len(outputs) == 1 != len(items):
        items = (returned,)
    if len(items) != len(outputs) or not isinstance(items, tuple | list):
        what = f"returns {described(returned)}, expected {len(outputs)} tensors"
        raise OtherForm(what)
    made: dict[str, object] = {}
    for output, item in zip(outputs, items, strict=True):
        paths = [n for n in names if output_of(n) == output_of(output)]
        made.update(_fitted(output_of(output), item, paths))
    return made


def described(value: object) -> str:
    """Return of which type a result is, and how long."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _items(returned: object, outputs: Sequence[str]) -> Sequence[object]:
    """Return what was returned in a row, a list that is the only output as one."""
    alone = len(outputs) == 1 and outputs[0].endswith(LIST)
    several = isinstance(returned, tuple | list) and not alone
    return returned if several else (returned,)  # type: ignore[return-value]


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what a list holds."""
    if not isinstance(value, tuple | list):
        yield name, value
        return
    if not value:
        raise ValueError(f"{name} is an empty list")
    for i, item in enumerate(value):
        yield from _leaves(f"{name}[{i}]", item)


def _fitted(
    name: str, value: object, names: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Yield what a result holds that should have these names.

    Raises:
        OtherForm: if it does not.
    """
    if name in names:  # the only one
        yield name, value
        return
    items: dict[str, list[str]] = {}
    for each in names:
        items.setdefault(each[: each.index("]", len(name)) + 1], []).append(each)
    if not isinstance(value, tuple | list) or len(value) != len(items):
        wanted = f"{len(items)} tensor{'s' * (len(items) != 1)}"
        raise OtherForm(f"{name} is {described(value)}, expected {wanted}", name)
    for (item, within), part in zip(items.items(), value, strict=True):
        yield from _fitted(item, part, within)
