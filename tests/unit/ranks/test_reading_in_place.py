"""What an operator changes in a mapped file's memory it may read, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tpcheck.ranks.reading import counted


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda whole: whole.mul_(2.0), 1.0),
        (lambda whole: whole[:8].add_(1.0), 0.125),
        (lambda whole: whole.fill_(2.0), 0.0),
        (lambda whole: whole.copy_(torch.ones(64)), 0.0),
    ],
)
def test_what_is_changed_in_place_is_read_unless_it_is_overwritten(
    change: Callable[[Tensor], Any], share: float, tmp_path: Path
) -> None:
    (tmp_path / "whole.bin").write_bytes(bytes(256))

    def load(module: Any, folder: Path) -> None:
        change(torch.from_file(str(folder / "whole.bin"), size=64))

    _, read = counted(load, None, tmp_path)
    assert read == 256 * share
