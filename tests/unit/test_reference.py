"""The reference in docs/ says what the commands and the settings are."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support import reference

AGAIN = "write it anew: python -m tests.support.reference"


@pytest.mark.parametrize(
    ("file", "generated"),
    [
        ("cli.md", reference.cli),
        ("settings.md", reference.settings),
        ("http-api.md", reference.http_api),
    ],
)
def test_the_generated_parts_are_up_to_date(file: str, generated: Callable[[str], str]) -> None:
    text = (reference.FOLDER / file).read_text("utf-8")
    assert generated(text) == text, AGAIN


def test_every_command_has_a_section() -> None:
    text = (reference.FOLDER / "cli.md").read_text("utf-8")
    assert set(re.findall(r"<!-- options of ([\w ]+) -->", text)) == set(reference.COMMANDS)


def test_every_setting_says_what_it_means() -> None:
    assert [name for name, field in reference.Settings.model_fields.items() if not field.description] == []
