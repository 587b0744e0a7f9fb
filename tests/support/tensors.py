"""The tensors of safetensors files, read without Braid."""
import json
import struct
from typing import NamedTuple


class Stored(NamedTuple):
    dtype: str
    shape: list
    data: bytes


def read_header(path):
    """The header of a file, and the bytes behind it."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_header(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def tensors(path):
    """Every tensor of a file, or of the one file of a folder, by name."""
    header, body = read_header(path / "model.safetensors" if path.is_dir() else path)
    header.pop("__metadata__", None)
    return {name: Stored(of["dtype"], of["shape"], body[slice(*of["data_offsets"])]) for name, of in header.items()}
