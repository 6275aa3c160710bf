"""The text of the tiny model: seven public-domain novels carried by two Debian packages.

`python corpus.py` writes `validation.txt` next to this file; `train.py` takes everything from here.
Needs Debian's `apt-get` and `dpkg-deb`; the downloads and the decoded text are checked by SHA-256.
"""

import hashlib
import re
import struct
import subprocess
import zlib
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "target" / "model"

VALIDATION_EVERY, VALIDATION_AT = 28, 13


class Source(NamedTuple):
    """A Debian package whose R data file holds whole books."""

    package: str
    version: str
    sha256: str
    rdb: str


# sha256 of the .deb files of Debian 12; another release or architecture may serve other bytes.
SOURCES = [
    Source(
        "r-cran-janeaustenr",
        "1.0.0-1",
        "df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95",
        "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",
    ),
    Source(
        "r-cran-tokenizers",
        "0.3.0-1",
        "6312f013ebfde5650235bfd7ba5c44d9e4cf9f2da9855337c9483fe778f0d8c7",
        "usr/lib/R/site-library/tokenizers/data/Rdata.rdb",
    ),
]
# What is finally trained on, whatever the packaging: all chapters joined by NUL characters.
CHAPTERS_SHA256 = "508fef3ac57f7952ccbbc872668352caff09a2f404e2d504c46dbaedad6bfc27"


def fetch(source: Source) -> bytes:
    """The package's R data file, downloaded once into WORK; a wrong checksum is an error."""
    WORK.mkdir(parents=True, exist_ok=True)
    files = list(WORK.glob(f"{source.package}_*.deb"))
    if not files:
        subprocess.run(["apt-get", "download", f"{source.package}={source.version}"], cwd=WORK, check=True)
        files = list(WORK.glob(f"{source.package}_*.deb"))
    found = hashlib.sha256(files[0].read_bytes()).hexdigest()
    if found != source.sha256:
        raise SystemExit(f"{files[0].name}: sha256 {found}, expected {source.sha256}")
    subprocess.run(["dpkg-deb", "-x", files[0].name, source.package], cwd=WORK, check=True)
    return (WORK / source.package / source.rdb).read_bytes()


def character_vectors(rdb: bytes) -> list[str]:
    """Each object of an R lazy-load file, as lines joined by newlines.

    An object is a big-endian u32 (its unpacked length) and a zlib stream. Unpacked, it is R's XDR serialization,
    version 3: `X\\n`, three i32, the encoding's name (i32 length, bytes), then one string vector: flags and count,
    and for each string flags, length and bytes. Attributes that follow are not needed.
    """
    books = []
    while rdb:
        stream = zlib.decompressobj()
        data, rdb = stream.decompress(rdb[4:]), stream.unused_data
        at = 18 + struct.unpack_from(">i", data, 14)[0]
        flags, count = struct.unpack_from(">Ii", data, at)
        if data[:2] != b"X\n" or flags & 0xFF != 16:
            raise SystemExit("an R object is not a character vector in XDR form")
        at += 8
        lines = []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", data, at + 4)
            lines.append(data[at + 8 : at + 8 + size].decode())
            at += 8 + size
        books.append("\n".join(lines))
    return books


def chapters(book: str) -> list[str]:
    """A book's chapters in order: no headings, a paragraph a line, an empty line between paragraphs."""
    book = book.replace("\r", "")
    book = re.split(r"\*\*\* ?START OF TH.*\n", book)[-1]
    book = re.split(r"\n(?:End of (?:the )?Project Gutenberg|\*\*\* ?END OF TH|A NOTE ON THE TEXT)", book)[0]
    parts = re.split(r"(?mi)^(?:chapter [0-9ivxl]+\b.*|epilogue)$", book)[1:]
    result = []
    for part in parts:
        paragraphs = [" ".join(p.split()).replace("_", "") for p in re.split(r"\n\s*\n", part)]
        kept = [p for p in paragraphs if p and not re.fullmatch(r"(?i)(volume [ivx]+|finis|the end)\.?", p)]
        if kept:
            result.append("\n\n".join(kept))
    return result


def load() -> tuple[list[str], list[str]]:
    """Training and validation chapters. In reading order, chapter i is validation where i % 28 == 13."""
    books = [book for source in SOURCES for book in character_vectors(fetch(source))]
    every = [chapter for book in books for chapter in chapters(book)]
    found = hashlib.sha256("\0".join(every).encode()).hexdigest()
    if found != CHAPTERS_SHA256:
        raise SystemExit(f"the chapters' sha256 is {found}, expected {CHAPTERS_SHA256}")
    held_out = [i % VALIDATION_EVERY == VALIDATION_AT for i in range(len(every))]
    train = [c for c, v in zip(every, held_out) if not v]
    validation = [c for c, v in zip(every, held_out) if v]
    return train, validation


def main() -> None:
    train, validation = load()
    (HERE / "validation.txt").write_text("\n\n".join(validation) + "\n", encoding="utf-8")
    for name, part in (("train", train), ("validation", validation)):
        print(f"{name}: {len(part)} chapters, {sum(len(c.encode()) for c in part)} bytes")


if __name__ == "__main__":
    main()
