"""Select the running text among files: by suffix, and by the first bytes for a file without one."""

from __future__ import annotations

import re
from collections.abc import Container

TEXT_SUFFIXES = (".txt", ".text", ".tokens", ".xml")
SNIFF = "?"              # verdict: read the file if its first bytes are text
MAX_BINARY_SHARE = 0.3   # share of NUL, control and undecodable characters in the first piece of a binary file
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_WIKI_PART = re.compile(r"\.xml-p\d+p\d+$")   # a part of a MediaWiki dump
_SUFFIX = re.compile(r"\.([A-Za-z]\w{0,11})$")
_KINDS = {
    "a table, not running text": "csv tsv tab xls xlsx ods feather",
    "a table; the format parquet reads a column of it": "parquet pq",
    "a table; the format arrow reads a column of it": "arrow",
    "JSON, not running text": "json jsonl ndjson",
    "marked-up text; convert it to plain text": "html htm xhtml md markdown rst tex rtf org sgm sgml bib",
    "a word processor document or an e-book; save it as plain text": "pdf doc docx odt epub mobi ps",
    "source code or settings": "py ipynb js ts c cc cpp h hpp java go rs rb pl sh yaml yml toml ini cfg lock sql css",
    "annotated text, which is not read": "conll conllu conllx ann srt vtt eaf textgrid",
    "an image, sound or film": "png jpg jpeg gif svg webp bmp tif tiff mp3 wav flac ogg mp4 avi mkv",
    "a table of numbers or a model": "npy npz bin model pkl pickle pt pth ckpt safetensors h5 hdf5 mat vec onnx rdata",
}
_REASON = {suffix: reason for reason, suffixes in _KINDS.items() for suffix in suffixes.split()}


def text_verdict(name: str) -> str:
    """Return the verdict on a base name without packing.

    '': it is text. SNIFF: its bytes decide. Otherwise: why it is not read. The bytes decide for a name without a
    suffix, with .raw (WikiText), with a suffix of two letters (a language: news.en) or of digits.
    """
    if name.lower().endswith(TEXT_SUFFIXES) or _WIKI_PART.search(name.lower()):
        return ""
    match = _SUFFIX.search(name)
    if match is None or match[1].lower() == "raw" or (len(match[1]) == 2 and match[1].lower() not in _REASON):
        return SNIFF
    return _REASON.get(match[1].lower()) or f"an unknown suffix, .{match[1]}"


def data_verdict(name: str, takes: Container[str]) -> str:
    """Return the verdict on a data file: '' unless its suffix is that of another kind of file and not in `takes`.

    takes: suffixes in lower case without the dot.
    """
    match = _SUFFIX.search(name)
    suffix = match[1].lower() if match else ""
    return "" if suffix in takes else _REASON.get(suffix, "")


def json_verdict(name: str) -> str:
    """Return the verdict on a file of JSON lines."""
    return "" if name.lower().endswith((".jsonl", ".ndjson", ".json")) else "not JSON lines by its suffix"


def parquet_verdict(name: str) -> str:
    """Return the verdict on a Parquet file."""
    return "" if name.lower().endswith((".parquet", ".pq")) else "not Parquet by its suffix"


def arrow_verdict(name: str) -> str:
    """Return the verdict on an Arrow file, and on the results that the library `datasets` keeps next to its files."""
    if name.startswith("cache-"):
        return "an intermediate result of the library datasets"
    return "" if name.lower().endswith(".arrow") else "not Arrow by its suffix"


def tagged_verdict(name: str) -> str:
    """Return the verdict on a file of tagged words: ca01 of Brown, but neither README nor cats.txt."""
    return "" if "." not in name and not name.isupper() else "not tagged text by its name"


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file are text: mostly UTF-8, without NUL."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):        # UTF-16: the reader rejects it with a hint how to convert it
        return True
    text = head.decode("utf-8", "replace")
    return bool(text.strip()) and b"\0" not in head and len(CONTROL.findall(text)) <= MAX_BINARY_SHARE * len(text)
