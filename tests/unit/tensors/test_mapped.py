"""Which tensors are a file that is mapped, and which are memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tpcheck.tensors import mapped


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "with blanks in its name"
    torch.arange(64, dtype=torch.float32).numpy().tofile(path)
    return path


def test_a_mapped_file_is_told_from_memory(file: Path) -> None:
    over = torch.from_file(str(file), shared=True, size=64)
    assert mapped.is_mapped(over) and mapped.is_mapped(over[32:])
    assert not mapped.is_mapped(over.clone())


def test_shared_memory_is_memory() -> None:
    shared: Tensor = torch.zeros(64).share_memory_()
    assert not mapped.is_mapped(shared)


def test_where_there_are_no_maps_nothing_is_known(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = torch.from_file(str(file), shared=True, size=64)
    monkeypatch.setattr(mapped, "MAPS", file.parent / "none")
    assert not mapped.is_mapped(over)
