"""What operators declare their parameters by: `kfuzz.strategies.tensors` and others."""

from collections.abc import Sequence
from typing import Final

from kfuzz.core.domain import (
    DISTINCT,
    MASKS,
    OFFSETS,
    RISING,
    SPANS,
    THROUGHOUT,
    interval_text,
)
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.recipe import Scalar, is_dtype
from kfuzz.strategies.parameters import (
    DimParameter,
    DtypeParameter,
    IndexParameter,
    ListParameter,
    ScalarParameter,
    SizeParameter,
    TensorParameter,
)

# An interval, see `tensors`.
Within = tuple[float | None, float | None] | str | None
# How recipes spell the floats that JSON lacks.
NUMBERS: Final = ("nan", "inf", "-inf")


def tensors(
    dims: str,
    *,
    role: str = "data",
    optional: bool = False,
    dtype: object = "",
    within: Within = None,
    probabilities: int | None = None,
) -> TensorParameter:
    """Return a tensor parameter with named dimensions; see `TensorParameter`.

    Args:
        dims: as of `TensorParameter`, like role and optional.
        role: what it is for.
        optional: whether an implementation may do without it.
        dtype: a name, or the `torch.dtype`.
        within: what the values stay within: both ends, which belong to it, None for no
            end: (0, 1), (None, 0); or a text, "(0, inf)", where a parenthesis leaves
            its end out. Infinities are drawn where an end is one that belongs to it,
            NaN never.
        probabilities: the axis, counted from the end, along which the values are not
            negative and sum to 1.

    Raises:
        BindingError: on malformed dimension names, an unknown role or dtype, or what
            is no interval.
    """
    domain = interval_text(within)
    if probabilities is not None:
        if domain or type(probabilities) is not int or probabilities >= 0:
            raise BindingError(
                f"probabilities={probabilities!r} is no axis counted from the end, or "
                "stands beside within=",
                fix="write for example probabilities=-1",
            )
        domain = f"probabilities along {probabilities}"
    return TensorParameter(dims, role, optional, _name_of(dtype), domain=domain)


def masks(dims: str, *, kind: str = "", optional: bool = False) -> TensorParameter:
    """Return a parameter of truth values: a bool tensor.

    A mask that is added to scores is `tensors(..., role="mask")`.

    Args:
        dims: as of `TensorParameter`, like optional.
        kind: "causal": true up to the diagonal of the last two dimensions; "padding":
            true elements in front of every row; "blocks": squares along that diagonal;
            "" for any truth values.
        optional: whether an implementation may do without it.

    Raises:
        BindingError: on malformed dimension names, or an unknown kind.
    """
    if kind and kind not in MASKS:
        raise BindingError(f"unknown mask {kind!r}", fix=suggestion(kind, MASKS))
    made = TensorParameter(dims, optional=optional, dtype="bool", domain=kind)
    if kind not in ("", "padding") and len(made.names) < 2:
        raise BindingError(
            f"a mask that is {kind} has two named dimensions, {dims!r} has not",
            fix='write for example ks.masks("B S T", kind="causal")',
        )
    return made


def indices(
    dims: str,
    below: str,
    *,
    ignored: str = "",
    optional: bool = False,
    dtype: object = "",
    rising: bool = False,
    distinct: bool | str = False,
) -> IndexParameter:
    """Return a parameter of indices into a dimension; see `IndexParameter`.

    A permutation of N is `indices("N", below="N", distinct=True)`, a page table
    `indices("B P", below="pages")`, or `distinct="throughout"` where no page is shared.

    Args:
        dims: as of `TensorParameter`, like optional.
        below: the dimension of another parameter, or the integer scalar.
        ignored: scalar parameter whose value is admitted beside them.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.
        rising: whether they never fall along the last dimension.
        distinct: whether none stands twice along the last dimension, "throughout" for
            the whole tensor. With either no index is out of bounds.

    Raises:
        BindingError: on malformed dimension names, or where distinct is neither.
    """
    if distinct not in (False, True, "throughout"):
        raise BindingError(f"distinct={distinct!r} is neither True nor 'throughout'")
    words = [RISING] if rising else []
    if distinct:
        words.append(DISTINCT if distinct is True else THROUGHOUT)
    own = _name_of(dtype)
    made = IndexParameter(
        dims, optional=optional, dtype=own, below=below, ignored=ignored,
        domain=" and ".join(words),
    )  # fmt: skip
    if words and (made.variadic or not made.names or ignored):
        raise BindingError(
            f"indices that are {made.domain} need named dimensions only, and none that "
            f"is ignored: {dims!r}"
        )
    return made


def offsets(
    dims: str, of: str, *, optional: bool = False, dtype: object = ""
) -> IndexParameter:
    """Return a parameter of offsets that cut a dimension into consecutive parts.

    They never fall; the first is 0, the last the whole size: `cu_seqlens` of a ragged
    batch. Some parts are empty. Where the number B of parts is another argument's size
    as well, `shape_class="S == B + 1"` says so.

    Args:
        dims: "S", the number of offsets: one more than that of the parts.
        of: the dimension that is cut.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.

    Raises:
        BindingError: if dims is not one name.
    """
    made = IndexParameter(
        dims, optional=optional, dtype=_name_of(dtype), below=of, domain=OFFSETS
    )
    if made.variadic or len(made.names) != 1:
        raise BindingError(
            f"offsets have one dimension, not {dims!r}",
            fix='write for example ks.offsets("S", of="T")',
        )
    return made


def spans(
    dims: str, of: str, *, optional: bool = False, dtype: object = ""
) -> IndexParameter:
    """Return a parameter of a start and an end each of parts that lie in a dimension.

    A part begins where the one before it ends, or later: what lies between is a gap,
    as behind the sequences of a batch that has room for longer ones. Some are empty.
    The argument has a second axis of size 2; a kernel that takes starts and lengths is
    bound by a function that gives it `spans[:, 0]` and `spans[:, 1] - spans[:, 0]`.

    Args:
        dims: "B", the number of parts.
        of: the dimension in which they lie.
        optional: whether an implementation may do without it.
        dtype: of every case; by default what a kernel declares as `index_dtypes`.

    Raises:
        BindingError: if dims is not one name.
    """
    made = IndexParameter(
        f"{dims} ends", optional=optional, dtype=_name_of(dtype), below=of,
        domain=SPANS,
    )  # fmt: skip
    if made.variadic or len(made.names) != 2:
        raise BindingError(
            f"spans have one dimension and their ends, not {dims!r}",
            fix='write for example ks.spans("B", of="T")',
        )
    return made


def lists(of: TensorParameter, most: int = 4) -> ListParameter:
    """Return a parameter that is a list of tensors; see `ListParameter`.

    Raises:
        BindingError: if what is to be listed is no tensor parameter, or most is no
            number from 1 up.
    """
    if not isinstance(of, TensorParameter) or of.without:
        raise BindingError(
            f"a list of {of!r:.60}", fix='write for example ks.lists(ks.tensors("N"))'
        )
    if type(most) is not int or most < 1:
        raise BindingError(f"a list of at most {most!r} tensors")
    return ListParameter(of, most)


def size(of: str) -> SizeParameter:
    """Return a parameter that is the size of a dimension, such as `num_experts`."""
    return SizeParameter(of)


def longest(of: str) -> SizeParameter:
    """Return a parameter that is the length of the longest part, `max_seqlen`.

    Args:
        of: the parameter of offsets or spans.
    """
    return SizeParameter(of, longest=True)


def scalar(default: Scalar, domain: Sequence[Scalar] = ()) -> ScalarParameter:
    """Return a scalar parameter that takes its default or a value of the domain.

    Raises:
        BindingError: if a value is a text that a recipe would read as another thing.
    """
    for value in (default, *domain):
        if is_dtype(value) or (isinstance(value, str) and value in NUMBERS):
            raise BindingError(
                f"a scalar cannot be the text {value!r}",
                fix="a dtype is ks.dtype(...), a number is a float",
            )
    return ScalarParameter(default, tuple(domain))


def dtype(default: object, domain: Sequence[object] = ()) -> DtypeParameter:
    """Return a scalar parameter that is a dtype, see `DtypeParameter`.

    Args:
        default: a name, or the `torch.dtype`.
        domain: others worth trying.

    Raises:
        BindingError: on what is no floating dtype.
    """
    return DtypeParameter(_name_of(default), tuple(map(_name_of, domain)))


def _name_of(given: object) -> str:
    """Return the name of a dtype, which may be given as torch's own."""
    return str(given).removeprefix("torch.")


def dim(of: str, default: int = -1) -> DimParameter:
    """Return a parameter that selects an axis of the tensor parameter `of`."""
    return DimParameter(of, default)
