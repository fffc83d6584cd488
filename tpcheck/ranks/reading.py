"""How many bytes of a checkpoint a loader reads: through Python's files, as `torch.load` and
`torch.distributed.checkpoint` read theirs, and of files that are mapped into memory, as safetensors
are, where an operator reads a tensor over them.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tpcheck.tensors.dispatch import OverCompiled, is_whole
from tpcheck.tensors.mapped import mapped_files


def counted(loader: Callable[..., Any], module: Any, folder: Path) -> tuple[Any, int]:
    """What `loader(module, folder)` returns, and how many bytes it reads."""
    reading = Reading(folder)
    with reading.counting():
        made = loader(module, folder)
    return made, reading.bytes


class Reading(OverCompiled):
    """Counts what is read of the files under a folder while it is entered. Parts of a mapped file
    count once, however often they are read: the second time they are in memory. Not seen: what
    other threads read of mapped files, and what an extension reads through a file descriptor.

    Args:
        folder: of the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = os.path.realpath(folder)
        self.through_files = 0
        self._parts: dict[str, Tensor] = {}  # mapped file → which of its bytes were read

    @property
    def bytes(self) -> int:
        """All that was read."""
        return self.through_files + sum(int(part.sum()) for part in self._parts.values())

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """The block in which it counts."""
        opens = builtins.open, io.open

        def counted(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if set(mode) == {"r", "b"} and self._is_of_it(file):
                return io.BufferedReader(_Counted(file, self))
            return opens[0](file, mode, *args, **kwargs)

        builtins.open = io.open = counted
        try:
            with self:
                yield
        finally:
            builtins.open, io.open = opens

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if not (is_whole(func) or func.is_view or _only_asks(func)):
            # what an operator writes into it does not read
            written = args[0] if args and _only_writes(func) else None
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, Tensor) and tensor is not written:
                    self._note(tensor)
        return func(*args, **(kwargs or {}))

    def _is_of_it(self, file: Any) -> bool:
        if not isinstance(file, (str, os.PathLike)):
            return False
        return os.path.realpath(file).startswith(f"{self.folder}{os.sep}")

    def _note(self, tensor: Tensor) -> None:
        """The bytes of a tensor over a mapped file are read."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
            return
        address, size, within = tensor.data_ptr(), tensor.element_size(), f"{self.folder}{os.sep}"
        for low, high, path in mapped_files(within):
            if low <= address < high and path.startswith(within):
                read = self._parts.setdefault(path, torch.zeros(high - low, dtype=torch.bool))
                strides = [size * stride for stride in tensor.stride()]
                part = read.as_strided([*tensor.shape, size], [*strides, 1], address - low)
                part.fill_(True)


class _Counted(io.FileIO):
    """A file whose bytes are counted as they are read."""

    def __init__(self, file: Any, reading: Reading) -> None:
        super().__init__(file, "rb")
        self._reading = reading

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._reading.through_files += count
        return count

    def readall(self) -> bytes:
        found = super().readall()
        self._reading.through_files += len(found)
        return found

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(-1 if size is None else size) or b""
        self._reading.through_files += len(found)
        return found


def _only_writes(func: Any) -> bool:
    """Whether the tensor that an operator changes is not read by it; `mul_`, say, reads it."""
    return func.overloadpacket.__name__ in ("copy_", "fill_", "zero_")


def _only_asks(func: Any) -> bool:
    """Whether an operator looks at the sizes of a tensor alone, or at one number of it, as
    safetensors does when it opens one."""
    name = func.overloadpacket.__name__
    return (
        name == "_local_scalar_dense"
        or name.endswith("_like")
        or name.startswith(("new_", "set_", "lift", "sym_"))
    )
