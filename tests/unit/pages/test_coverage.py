"""The table of what training is checked for: what it names is there, and can fail."""

from __future__ import annotations

import importlib
import re

import pytest

from tests import ROOT
from tpcheck import specs

PAGE = (ROOT / "docs/coverage.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
WRONG = r"`fixtures/mutants/(\w+)\.py` \((\d+)\)"


def test_there_are_rows() -> None:
    assert len(ROWS) == 18


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.strip("| ").partition(" |")[0])
def test_each_names_what_is_there_and_at_least_four_wrong_ones(row: str) -> None:
    for name in re.findall(r"`specs\.(\w+)`", row):
        assert name in specs.__all__
    for file in re.findall(r"`(properties/[\w/]+\.py)`", row):
        assert (ROOT / file).exists()
    counted = {name: int(count) for name, count in re.findall(WRONG, row)}
    for name, count in counted.items():
        assert len(importlib.import_module(f"fixtures.mutants.{name}").MUTANTS) == count, name
    assert sum(counted.values()) >= 4
