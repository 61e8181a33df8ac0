"""Text of a finding where a script holds no literal of it.

What a script computes with is written as `repr` gives it; these are for the rest.
"""


def in_comment(text: str) -> str:
    """Return a text on one line: what is not printable, as ends of lines, escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def in_docstring(text: str) -> str:
    """Return a text on one line that a string between three double quotes may hold."""
    return in_comment(text).replace("\\", "\\\\").replace('"', '\\"')
