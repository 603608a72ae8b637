"""Figures: medians with their extremes, a table for people, lines of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

OURS = "durable-jobs"


class Figure(NamedTuple):
    """What one system reached in one test; the median of its repeats."""

    system: str
    test: str
    unit: str
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)


class Results:
    """All figures of one run, in the order in which they came."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._values: dict[tuple[str, str, str], list[float]] = {}
        self._absent: dict[str, str] = {}

    def add(self, system: str, test: str, value: float, unit: str) -> None:
        """Add one repeat."""
        self._values.setdefault((test, system, unit), []).append(value)

    def absent(self, system: str, why: str) -> None:
        """Say why a system is not measured."""
        self._absent[system] = why

    @property
    def figures(self) -> list[Figure]:
        """One figure for each system and test; tests stay together."""
        tests = list(dict.fromkeys(test for test, _, _ in self._values))
        return [
            Figure(system, test, unit, tuple(values))
            for wanted in tests
            for (test, system, unit), values in self._values.items()
            if test == wanted
        ]

    def show(self, console: Console, title: str) -> None:
        """Print the table."""
        table = Table(title=title, title_justify="left")
        for name in ("test", "system", "median", "min - max", "ours is"):
            table.add_column(name, justify="left" if name in ("test", "system") else "right")
        figures = self.figures
        last = ""
        for figure in figures:
            if last and figure.test != last:
                table.add_section()
            table.add_row(figure.test if figure.test != last else "", *_cells(figure, figures))
            last = figure.test
        for system, why in self._absent.items():
            table.add_section()
            table.add_row("not measured", system, why)
        console.print(table)

    def write(self, file: Path) -> None:
        """Write one line of JSON for each figure."""
        file.write_text("".join(_line(figure) for figure in self.figures))


def _cells(figure: Figure, figures: Iterable[Figure]) -> Sequence[str]:
    ours = next((f for f in figures if f.test == figure.test and f.system == OURS), None)
    ratio = ""
    if ours is not None and figure.system != OURS and figure.value:
        ratio = f"{ours.value / figure.value:.2f} x"
    low, high = min(figure.values), max(figure.values)
    return (
        figure.system,
        f"{_number(figure.value)} {figure.unit}",
        f"{_number(low)} - {_number(high)}" if len(figure.values) > 1 else "",
        ratio,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _line(figure: Figure) -> str:
    row = {"system": figure.system, "test": figure.test, "value": round(figure.value, 3), "unit": figure.unit}
    return json.dumps(row | {"min": round(min(figure.values), 3), "max": round(max(figure.values), 3)}) + "\n"
