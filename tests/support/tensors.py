"""The tensors of safetensors files, read without Braid."""
import json
import re
import shutil
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


def stack_experts(folder, to):
    """A copy of a model's folder in which the experts of a layer are one tensor."""
    shutil.copytree(folder, to)
    head, body = read_header(folder / "model.safetensors")
    head.pop("__metadata__", None)
    groups = {}
    for name, tensor in head.items():
        expert = re.fullmatch(r"(.*experts)\.(\d+)(\..*)\.weight", name)
        key, place = (expert[1] + expert[3], int(expert[2])) if expert else (name, -1)
        groups.setdefault(key, {})[place] = tensor
    out, parts = {}, []
    for name, found in groups.items():
        bodies = [body[slice(*found[i]["data_offsets"])] for i in sorted(found)]
        shape = found[min(found)]["shape"]
        at = sum(map(len, parts))
        parts.append(b"".join(bodies))
        out[name] = {"dtype": found[min(found)]["dtype"], "shape": shape if -1 in found else [len(found), *shape],
                     "data_offsets": [at, at + len(parts[-1])]}
    write_header(to / "model.safetensors", out, b"".join(parts))
