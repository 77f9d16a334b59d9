"""HTML and SVG elements as text. Everything that is put in is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

EMPTY_ELEMENTS = {"meta", "link", "br"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Markup | Iterable["Content"]


def markup(content: Content) -> Markup:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(escape(content))
    return Markup("".join(markup(part) for part in content))


def tag(name: str, /, *content: Content, **attributes: object) -> Markup:
    """`class_` is class, `stroke_width` is stroke-width; numbers get at most two decimals."""
    words = [name]
    for attribute, value in attributes.items():
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        words.append(f'{attribute.rstrip("_").replace("_", "-")}="{escape(text)}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in EMPTY_ELEMENTS else f"{opening}{markup(content)}</{name}>")
