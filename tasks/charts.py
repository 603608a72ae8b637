"""Charts for artifacts: an SVG image inside the markdown, which both Prefect UIs show.

The same figures always stand in a table beside it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

COLOURS = ("#2e9e6b", "#d9534f", "#8a8f98", "#e0a030", "#4a7fd1")
_ROW, _LABEL, _WIDTH = 26, 190, 640


def bar_chart(title: str, series: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Return a markdown image: one stacked bar for each row, one colour for each series."""
    most = max((sum(values) for _, values in rows), default=0) or 1
    height = 34 + _ROW * len(rows)
    parts = [_legend(series)]
    for n, (label, values) in enumerate(rows):
        parts.append(_bar(label, values, 30 + n * _ROW, (_WIDTH - _LABEL - 60) / most))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}" font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _legend(series: Sequence[str]) -> str:
    parts, x = [], _LABEL
    for name, colour in zip(series, COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="17" fill="#333333">{escape(name.lower())}</text>')
        x += 30 + 8 * len(name)
    return "".join(parts)


def _bar(label: str, values: Sequence[int], y: int, scale: float) -> str:
    shortened = label if len(label) <= 26 else label[:25] + "…"
    parts = [
        f'<text x="{_LABEL - 8}" y="{y + 14}" text-anchor="end" fill="#333333">{escape(shortened)}</text>'
    ]
    x = float(_LABEL)
    for value, colour in zip(values, COLOURS, strict=False):
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 2}" width="{value * scale:.1f}" height="16" fill="{colour}"/>'
        )
        x += value * scale
    parts.append(f'<text x="{x + 6:.1f}" y="{y + 14}" fill="#333333">{sum(values)}</text>')
    return "".join(parts)
