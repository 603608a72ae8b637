"""Sample documents of ten kinds, each a real file of its kind, made from a number alone.

Invariant: the same number gives the same document.
"""

from __future__ import annotations

import csv
import io
import json
import random
import struct
import zlib
from collections.abc import Callable

_PLACES = ("Lisbon", "Riga", "Ghent", "Turku", "Graz", "Porto", "Malmö", "Košice", "Brest", "Cádiz")
_THINGS = ("delivery", "contract", "survey", "invoice", "inspection", "meeting", "repair", "transfer")
_STATES = ("accepted", "postponed", "paid in full", "returned", "signed by both sides", "under review")


def markdown(seed: int) -> bytes:
    """Minutes of a meeting."""
    rng = _random(seed)
    lines = [f"# Minutes of meeting {seed}", ""]
    for item in range(1, 40):
        lines += [f"## {item}. {rng.choice(_THINGS).title()}", "", _paragraph(rng), ""]
    return "\n".join(lines).encode()


def text(seed: int) -> bytes:
    """A letter."""
    rng = _random(seed)
    return "\n\n".join(_paragraph(rng) for _ in range(12)).encode()


def log(seed: int) -> bytes:
    """A few megabytes of a machine's log, which compress well."""
    rng = _random(seed)
    lines = (
        f"2026-03-{1 + n // 1440 % 28:02}T{n // 60 % 24:02}:{n % 60:02}:00Z press-{seed % 7}"
        f" temperature={rng.uniform(20, 90):.1f} state={rng.choice(_STATES)!r}"
        for n in range(40_000)
    )
    return "\n".join(lines).encode()


def table(seed: int) -> bytes:
    """A CSV file of bookings."""
    rng = _random(seed)
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["booking", "place", "what", "amount", "note"])
    for n in range(3000):
        amount = f"{rng.uniform(1, 9000):.2f}"
        rows.writerow(
            [f"B{seed:03}-{n:05}", rng.choice(_PLACES), rng.choice(_THINGS), amount, _sentence(rng)]
        )
    return out.getvalue().encode()


def records(seed: int) -> bytes:
    """A JSON file of nested records."""
    rng = _random(seed)
    items = [
        {"id": n, "place": rng.choice(_PLACES), "tags": rng.sample(_THINGS, 3), "notes": [_sentence(rng)] * 2}
        for n in range(400)
    ]
    return json.dumps({"export": seed, "items": items}, indent=1, ensure_ascii=False).encode()


def page(seed: int) -> bytes:
    """An HTML page."""
    rng = _random(seed)
    body = "".join(f"<h2>{rng.choice(_PLACES)}</h2><p>{_paragraph(rng)}</p>\n" for _ in range(20))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Report {seed}</title></head>'
        f"<body>\n{body}</body></html>\n"
    ).encode()


def picture(seed: int) -> bytes:
    """A PNG image with a grainy gradient, 480 x 320 pixels in colour."""
    rng, width, height = _random(seed), 480, 320
    rows = bytearray()
    for y in range(height):
        grain = rng.randbytes(width)
        rows.append(0)  # this row is stored unfiltered
        for x in range(width):
            rows += bytes((x * 255 // width, y * 255 // height, (seed * 23 + grain[x] // 8) % 256))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, data) for kind, data in parts)


def letter(seed: int) -> bytes:
    """A PDF of three pages of text."""
    rng = _random(seed)
    pages = [
        [f"Contract {seed}, page {n}", *(_sentence(rng, ascii_only=True) for _ in range(38))]
        for n in (1, 2, 3)
    ]
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", _pdf_tree(len(pages))]
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, lines in enumerate(pages):
        objects += [_pdf_page(5 + 2 * number), _pdf_stream(lines)]
    return _pdf_file(objects)


def recording(seed: int) -> bytes:
    """A few megabytes of a WAV recording, which hardly compress: eight-bit noise, mono."""
    samples = _random(seed).randbytes(500_000 + 400_000 * (seed % 6))
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 16_000, 1, 8)
    data = struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data


def byte(seed: int) -> bytes:
    """A file of one byte."""
    return bytes([seed % 256])


KINDS: tuple[tuple[str, Callable[[int], bytes]], ...] = (
    ("minutes-{}.md", markdown),
    ("contract-{}.pdf", letter),
    ("bookings-{}.csv", table),
    ("photo-{}.png", picture),
    ("letter-{}.txt", text),
    ("export-{}.json", records),
    ("report-{}.html", page),
    ("call-{}.wav", recording),
    ("press-{}.log", log),
    ("flag-{}.bin", byte),
)
"""A file name with room for a number, and what makes its content from that number."""


def _random(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- sample texts, not secrets


def _sentence(rng: random.Random, *, ascii_only: bool = False) -> str:
    place = rng.choice([p for p in _PLACES if p.isascii()] if ascii_only else _PLACES)
    number = rng.randrange(100, 9999)
    return f"The {rng.choice(_THINGS)} {number} of {place} is {rng.choice(_STATES)}."


def _paragraph(rng: random.Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randrange(4, 12)))


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pdf_tree(pages: int) -> bytes:
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(pages))
    return f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>".encode()


def _pdf_page(contents: int) -> bytes:
    return (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842]"
        f" /Resources << /Font << /F1 3 0 R >> >> /Contents {contents} 0 R >>"
    ).encode()


def _pdf_stream(lines: list[str]) -> bytes:
    shown = "".join(f"({line}) Tj T*\n" for line in lines)
    packed = zlib.compress(f"BT /F1 11 Tf 60 780 Td 18 TL\n{shown}ET".encode())
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed)


def _pdf_file(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table_at, count = len(out), len(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n" % count
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, table_at)
    return bytes(out)
