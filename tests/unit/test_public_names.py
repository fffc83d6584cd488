"""The public names: loaded on first use, each from the file that a reader would look in."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tpcheck


@pytest.mark.parametrize("name", tpcheck.__all__)
def test_a_public_name_is_there(name: str) -> None:
    value = getattr(tpcheck, name)
    home = value.__module__.removeprefix("tpcheck.")
    assert home == tpcheck._HOME[name]


def test_every_name_with_a_home_is_public_and_no_other() -> None:
    assert sorted(tpcheck._HOME) == tpcheck.__all__
    with pytest.raises(AttributeError, match="no attribute 'Onyl'"):
        _ = tpcheck.Onyl


@pytest.mark.parametrize("name", tpcheck._MODULES)
def test_a_module_is_there_without_an_import_of_its_own(name: str) -> None:
    said = f"import tpcheck; print(tpcheck.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == f"tpcheck.{name}\n"
