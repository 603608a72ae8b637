"""DOCUMENT_ARCHIVE: files into a content-addressed store."""
