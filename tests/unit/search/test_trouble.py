"""What keeps a check from running is one line, with what to do where that is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tpcheck import Case, specs
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import pose
from tpcheck.search.trouble import why

DIMS = {"batch": 1, "seq": 2, "in_features": 4, "out_features": 3, "bias": False}


def line(raised: BaseException) -> str:
    """Of a reference whose forward raises."""

    def forward(module: Any, inputs: Any) -> Any:
        raise raised

    with pytest.raises(InvalidArgument) as caught:
        pose(dataclasses.replace(specs.row_linear(), forward=forward), Case(dims=DIMS))
    return why(caught.value)


@pytest.mark.parametrize("raised", [NotImplementedError("'mm' not implemented for 'Half'")])
def test_an_error_of_torchs_may_be_one_of_the_dtype(raised: BaseException) -> None:
    assert "where for another, give --dtype" in line(raised)


@pytest.mark.parametrize("raised", [NameError("name 'x' is not defined"), KeyError("x")])
def test_a_mistake_of_the_code_is_none_of_the_dtype(raised: BaseException) -> None:
    said = line(raised)
    assert type(raised).__name__ in said and "dtype" not in said
    assert len(said.splitlines()) == 1
