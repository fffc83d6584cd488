"""Tensors over a file that is mapped: it is read as it is used, so that the rest of it takes no
memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

MAPS = Path("/proc/self/maps")
#: Where what looks like a file is memory.
_MEMORY = ("/dev/", "/memfd:", "/SYSV")


def is_mapped(tensor: Tensor) -> bool:
    """Whether a tensor's storage is (a part of) a file on disk; False where that can't be known."""
    storage = tensor.untyped_storage()
    if storage.device.type != "cpu":
        return False
    address = storage.data_ptr()
    return any(
        low <= address < high and not path.startswith(_MEMORY) for low, high, path in mapped_files()
    )


def mapped_files(under: str = "/") -> Iterator[tuple[int, int, str]]:
    """The addresses at which files are mapped, what is memory among them, and their paths. A line
    of what the system says is `7f00-7f40 rw-p 0000 fe:00 17 /a/file`.

    Args:
        under: what is in their paths, which are hundreds otherwise.
    """
    lines = MAPS.read_text().splitlines() if MAPS.exists() else []
    for line in (one for one in lines if under in one):
        addresses, *_, path = line.split(maxsplit=5) if line.count(" ") > 4 else (line, "")
        if path.startswith("/"):
            low, high = addresses.split("-")
            yield int(low, 16), int(high, 16), path
