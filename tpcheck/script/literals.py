"""Numbers and tensors as Python source."""

from __future__ import annotations

import base64
import textwrap
import zlib

import torch
from torch import Tensor

from tpcheck.errors import InvalidArgument

#: Numbers of a storage that are written out; a reader looks at no more of them. The bytes of a
#: larger one are packed.
READABLE = 64

#: Bytes of a tensor, at most: a script is one file that can be mailed.
LARGEST = 2**24

_WIDTH = 100
_INDENT = " " * 12


def number(given: float) -> str:
    """With all of its digits; `inf` and `nan` as names."""
    return repr(float(given))


def tensor(given: Tensor, device: str = "cpu") -> str:
    """A call of `stored` (`parts/tensors`) that makes the same tensor, with all of its storage; of
    a storage that is larger, as that of "giant" rows, which is mostly reserved, with its elements.

    Args:
        device: on which it is made.

    Raises:
        InvalidArgument: it is too large.
    """
    given = given.detach().cpu()
    memory = given.untyped_storage()
    sparse = memory.nbytes() > LARGEST
    if given.numel() * given.element_size() > LARGEST:
        raise InvalidArgument(
            f"a script has tensors of {LARGEST:,} bytes at most, and this case has one of "
            f"{given.numel() * given.element_size():,}"
        )
    flat = torch.empty(0, dtype=given.dtype).set_(memory)
    held = given.reshape(-1) if sparse else flat
    numbers = _numbers(held) if held.numel() <= READABLE else _packed(held)
    layout = f"{tuple(given.shape)}, {tuple(given.stride())}, {given.storage_offset()}"
    where = "" if device == "cpu" else f", device={device!r}"
    length = f", length={flat.numel()}" if sparse else ""
    return f"stored({given.dtype}, {layout}, {numbers}{where}{length})"


def _numbers(flat: Tensor) -> str:
    """In decimals that name one float64 each: every smaller dtype gets its own number back."""
    wide = flat.double() if flat.is_floating_point() else flat
    text = ", ".join(map(repr, wide.tolist()))
    if len(text) < _WIDTH // 3:
        return f"[{text}]"
    lines = textwrap.wrap(text, _WIDTH - len(_INDENT), break_long_words=False)
    return "\n".join(["[", *(_INDENT + line for line in lines), _INDENT[4:] + "]"])


def _packed(flat: Tensor) -> str:
    """Its bytes, compressed, in base 85."""
    raw = flat.view(torch.uint8).numpy().tobytes()
    text = base64.b85encode(zlib.compress(raw, 9)).decode()
    step = _WIDTH - len(_INDENT) - 2
    lines = [_INDENT + repr(text[i : i + step]) for i in range(0, len(text), step)]
    return "\n".join(["", *lines, _INDENT[4:]])
