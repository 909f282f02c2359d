"""Headers of .npy files: arrays of numbers are read, and hostile headers end in one error."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from embtrain.common.errors import DataError
from embtrain.data.storage import npy
from embtrain.data.storage.cache import AppendableArray
from embtrain.data.walks import walks


def _file(path: Path, header: str, data: bytes = bytes(64), version: int = 1) -> Path:
    text = header.encode() + b"\n"
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text))
                     + text + data)
    return path


def _shape(shape: str, descr: str = "'<i8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize("table", [np.arange(6).reshape(2, 3), np.zeros((0, 3), np.int32), np.array(5.0),
                                   np.asfortranarray(np.ones((3, 2), np.uint16)), np.arange(4, dtype=">i4")])
def test_array_of_numbers_is_read(tmp_path: Path, table: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", table)
    for result in [npy.load(tmp_path / "a.npy"), *([npy.load(tmp_path / "a.npy", "r")] if table.size else [])]:
        assert result.dtype == table.dtype and result.shape == table.shape and (result == table).all()


@pytest.mark.parametrize("header", ["{'shape': (2, 4), 'fortran_order': False, 'descr': '<i8'}",
                                    '{"descr": "<i8", "fortran_order": False, "shape": (2,4)}'])
def test_headers_of_other_programs_are_read(tmp_path: Path, header: str) -> None:
    assert npy.load(_file(tmp_path / "a.npy", header)).shape == (2, 4)


@pytest.mark.parametrize(("header", "says"), [
    ("(" * 5000, "does not describe"), ("{" * 5000, "does not describe"), ("-" * 9000 + "1", "does not describe"),
    ("1+" * 4500 + "1", "does not describe"), (_shape("(2, 4)", "[" * 300 + "]" * 300), "does not describe"),
    (_shape("(2, 4)", "[('a', '<i8')]"), "does not describe"), (_shape("(-1, 4)"), "does not describe"),
    (_shape("(" + "9" * 5000 + ",)"), "declares more numbers"), (_shape("(4611686018427387904, 4)"), "declares more"),
    (_shape("(" + "1, " * 3000 + ")"), "declares more"), (_shape("(2, 4)") + " " * 20_000, "has 20,0"),
])
@pytest.mark.parametrize("version", [1, 2])
def test_hostile_header_is_one_error(tmp_path: Path, header: str, says: str, version: int) -> None:
    path = _file(tmp_path / "a.npy", header, version=version)
    with pytest.raises(ValueError, match=says):
        npy.load(path)
    with pytest.raises(DataError, match=rf"a\.npy: is not a complete \.npy file of numbers: .*{says}"):
        walks.encode_array(path, 100, AppendableArray())


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
                                     b"PK\x03\x04" + bytes(100)])
def test_file_without_a_header_is_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match="header"):
        npy.load(tmp_path / "a.npy")
