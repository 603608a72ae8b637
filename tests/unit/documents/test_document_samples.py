"""The sample documents: real files of their kinds, the same every time."""

import csv
import io
import json
import re
import struct
import wave
import zlib
from pathlib import Path

from durable_jobs.documents import sample_kinds
from durable_jobs.documents.samples import write_samples


def test_writing_again_gives_the_same_documents(tmp_path: Path) -> None:
    first = write_samples(tmp_path / "documents", 12)
    contents = [path.read_bytes() for path in first if path.is_file() and path.suffix != ".tar"]

    second = write_samples(tmp_path / "documents", 12)

    assert second == first
    assert [path.read_bytes() for path in second if path.is_file() and path.suffix != ".tar"] == contents


def test_any_count_has_all_that_fail(tmp_path: Path) -> None:
    for count in (0, 1, 2, 25):
        samples = write_samples(tmp_path / str(count), count)
        assert len(samples) == len(set(samples)) == count + 6


def test_sizes_go_from_one_byte_to_a_few_megabytes_and_cost_little_room(tmp_path: Path) -> None:
    files = [path.stat() for path in write_samples(tmp_path) if path.is_file()]
    assert min(file.st_size for file in files) == 1
    assert 2_000_000 < sorted(file.st_size for file in files)[-2] < 10_000_000
    assert sum(file.st_blocks * 512 for file in files) < 60_000_000


def test_the_png_is_a_png() -> None:
    picture = sample_kinds.picture(3)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(picture):
        length, kind = struct.unpack_from(">I4s", picture, at)
        data = picture[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", picture, at + 8 + length) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]


def test_the_pdf_is_a_pdf() -> None:
    letter = sample_kinds.letter(1)
    assert letter.startswith(b"%PDF-1.4")
    assert letter.endswith(b"%%EOF\n")
    found = re.search(rb"startxref\n(\d+)\n", letter)
    assert found is not None
    assert letter[int(found[1]) :].startswith(b"xref\n")
    offsets = [int(offset) for offset in re.findall(rb"(\d{10}) 00000 n ", letter)]
    assert [letter[offset:].startswith(b"%d 0 obj" % n) for n, offset in enumerate(offsets, 1)] == [True] * 9
    streams = re.findall(rb"/Length (\d+) .*?stream\n(.*?)\nendstream", letter, re.DOTALL)
    assert len(streams) == 3
    for length, stream in streams:
        assert len(stream) == int(length)
        assert b"Contract 1, page" in zlib.decompress(stream)


def test_the_other_kinds_are_what_their_names_say() -> None:
    assert len(list(csv.reader(io.StringIO(sample_kinds.table(2).decode())))) == 3001
    assert len(json.loads(sample_kinds.records(2))["items"]) == 400
    assert sample_kinds.page(2).startswith(b"<!doctype html>")
    with wave.open(io.BytesIO(sample_kinds.recording(2))) as recording:
        assert recording.getnframes() == 1_300_000
