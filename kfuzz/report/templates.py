"""Documents from Jinja templates beside the modules that fill them."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STYLE = Path(__file__).parent / "kinds" / "html" / "style.css"
"""The style of all pages."""


def rendered(
    template: Path,
    content: Mapping[str, Any],
    *,
    html: bool,
    filters: Mapping[str, Any] | None = None,
) -> str:
    """Return a template filled in; what it names and is not given is an error.

    Args:
        template: its file.
        content: what it names.
        html: whether texts are escaped as they pass in.
        filters: functions that it calls by name.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
    environment.filters |= dict(filters or {})
    return environment.get_template(template.name).render(content)


def source_of(text: str) -> str:
    """Return how a content security policy names a style or script by its hash."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
