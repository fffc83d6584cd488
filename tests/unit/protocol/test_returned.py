"""What a rank has written is read; what a candidate has put in its place is not waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tpcheck.protocol.returned import file_of, read

PUT: dict[str, Callable[[Path], object]] = {
    "nothing": lambda file: None,
    "a pipe": os.mkfifo,
    "a folder": lambda file: file.mkdir(),
    "a link": lambda file: file.symlink_to("/dev/zero"),
    "a loop": lambda file: file.symlink_to(file),
    "text": lambda file: file.write_text("text"),
    "no bytes": lambda file: file.touch(),
}


def test_tensors_are_read(tmp_path: Path) -> None:
    save_file({"a/b": torch.ones(3)}, file_of(tmp_path, 1))
    kept = read(tmp_path, 1)
    assert kept is not None and kept["a/b"].tolist() == [1.0, 1.0, 1.0]
    assert read(tmp_path, 0) is None


@pytest.mark.parametrize("what", PUT)
def test_anything_else_is_none(tmp_path: Path, what: str) -> None:
    PUT[what](file_of(tmp_path, 0))
    assert read(tmp_path, 0) is None
