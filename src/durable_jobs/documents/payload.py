"""What a DOCUMENT_ARCHIVE job is asked, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from durable_jobs.documents.digests import PATTERN
from durable_jobs.documents.location import canonical_source, is_text, path_of

DEFAULT_MAX_BYTES = 256 * 1024 * 1024


def _source(given: Any) -> Any:
    return canonical_source(given) if isinstance(given, str | Path) else given


def _absolute(folder: Path) -> Path:
    written = str(folder)
    if not folder.is_absolute():
        raise ValueError(f"{written!r} is not absolute; write the folder from / on")
    if "\0" in written:
        raise ValueError("a folder's name cannot hold a NUL character")
    if not is_text(folder):
        raise ValueError(f"{written!r} is not UTF-8; an archive's folder needs a name that is text")
    return folder


def _lower(given: Any) -> Any:
    return given.lower() if isinstance(given, str) else given


class ArchiveDocument(BaseModel):
    """Archive one file of this machine, as the user that runs the jobs sees it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[str, BeforeValidator(_source)] = Field(
        description="The document: an absolute path, or a file:/// URL."
    )
    store: Annotated[Path, AfterValidator(_absolute)] = Field(
        description="The archive's folder, an absolute path; it is made when it is missing."
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1, description="Largest document that is archived, in bytes (256 MiB)."
    )
    expected_sha256: Annotated[str, BeforeValidator(_lower), Field(pattern=PATTERN)] | None = Field(
        None, description="If given: the document's sha256; one with another is not archived."
    )

    @property
    def path(self) -> Path:
        """Where the document is."""
        return path_of(self.source)


class ArchivedDocument(BaseModel):
    """What was archived; sizes in bytes, before and after compression."""

    source: str
    sha256: str
    size: int
    stored_size: int
    media_type: str
    object_path: str
    already_stored: bool
