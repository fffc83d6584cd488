"""How many ranks `verify` needs: as many as the degrees of what is verified."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tpcheck.cli.verify import _require_ranks
from tpcheck.errors import InvalidArgument
from tpcheck.search.options import Options


def checks_with(degrees: str, folder: Path) -> list[str]:
    """A file with one check that has these degrees of its own."""
    file = folder / "own.py"
    file.write_text(
        "from dataclasses import replace\nfrom tpcheck import Check, specs\n"
        f"spec = replace(specs.mlp(), degrees={degrees})\n"
        "own = Check(spec, lambda case, mesh: None)\n"
    )
    return [str(file)]


@pytest.mark.parametrize(
    ("degrees", "says"),
    [
        ("()", "tp degree 2 needs 2 ranks"),  # those of the run
        ("(1,)", ""),
        ("(1, 8)", "tp degree 2 needs 2 ranks"),
    ],
)
def test_checks_with_degrees_of_their_own_need_ranks_for_these_alone(
    degrees: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=says) if says else contextlib.nullcontext():
        _require_ranks(1, checks_with(degrees, tmp_path), Options())


def test_a_dtype_is_asked_about_in_any_case(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'float31' is not one of"):
        _require_ranks(1, checks_with("(1,)", tmp_path), Options(dtypes=("float31",)))
