"""The payload of DOCUMENT_ARCHIVE: one written form for each place, and faults named with the way out."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from durable_jobs.documents.payload import ArchiveDocument


def request(source: str | Path, **more: Any) -> ArchiveDocument:
    return ArchiveDocument.model_validate({"source": source, "store": "/archive", **more})


@pytest.mark.parametrize(
    ("given_", "source"),
    [
        ("/documents/a b.txt", "/documents/a b.txt"),
        ("file:///documents/a%20b.txt", "/documents/a b.txt"),
        ("FILE://localhost/documents/a%23b", "/documents/a#b"),
        ("file:///documents/gr%C3%BC%C3%9Fe.txt", "/documents/grüße.txt"),
        (Path("/documents/x"), "/documents/x"),
        (Path(os.fsdecode(b"/documents/\xff.txt")), "file:///documents/%FF.txt"),
    ],
)
def test_a_place_has_one_written_form(given_: str | Path, source: str) -> None:
    assert request(given_).source == source


def test_a_name_that_is_no_text_is_found_again(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.txt"))
    path.write_bytes(b"content")
    again = ArchiveDocument.model_validate_json(request(path).model_dump_json())
    assert again.path.read_bytes() == b"content"


@given(name=st.binary(min_size=1, max_size=50).filter(lambda name: b"\0" not in name and b"/" not in name))
def test_every_name_survives_being_written_as_json(name: bytes) -> None:
    path = Path("/documents") / os.fsdecode(name)
    asked = request(path)
    again = ArchiveDocument.model_validate_json(asked.model_dump_json())
    assert again == asked
    assert again.path == path
    assert request(path.as_uri()) == asked


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"source": "letter.txt"}, "not absolute"),
        ({"source": ""}, "not absolute"),
        ({"source": "https://example.com/letter.txt"}, "only files can be archived"),
        ({"source": "file://elsewhere/letter.txt"}, "on the machine 'elsewhere'"),
        ({"source": "file:///letter#1.txt"}, "%23"),
        ({"source": "/letter\0.txt"}, "NUL"),
        ({"source": "file:///letter%00.txt"}, "NUL"),
        ({"source": 7}, "valid string"),
        ({"store": "archive"}, "not absolute"),
        ({"store": "/archive\0"}, "NUL"),
        ({"store": Path("/\udcff")}, "not UTF-8"),
        ({"max_bytes": 0}, "greater than or equal to 1"),
        ({"expected_sha256": "abc"}, "match pattern"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_a_fault_is_named(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ArchiveDocument.model_validate({"source": "/a", "store": "/archive", **fields})


def test_an_expected_digest_may_be_in_capitals() -> None:
    assert request("/a", expected_sha256="AB" * 32).expected_sha256 == "ab" * 32
