"""Documents from Jinja templates beside the modules that fill them."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_PAGES: Final = Path(__file__).parent / "kinds" / "html"
"""Has the style of all pages, and their head."""


def page(template: Path, content: Mapping[str, Any], script: str = "") -> str:
    """Return a self-contained page, which loads nothing.

    Args:
        template: its file; includes "head.html".
        content: what it names, but style, script and policy.
        script: that it may run; none by default.
    """
    style = (_PAGES / "style.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; img-src data:; style-src {_source_of(style)}"
    if script:
        policy += f"; script-src {_source_of(script)}"
    more = {"style": style, "script": script, "policy": policy}
    return rendered(template, {**content, **more}, html=True)


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
        loader=FileSystemLoader([template.parent, _PAGES]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
    environment.filters |= dict(filters or {})
    return environment.get_template(template.name).render(content)


def _source_of(text: str) -> str:
    """Return how a content security policy names a style or script by its hash."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
