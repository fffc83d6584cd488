"""What a spec's own functions give, as they are asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import candidates
from tpcheck import InvalidArgument, Layout, Shard, specs
from tpcheck.oracle.pose import pose


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"reference": lambda case: None}, r"reference\(case\) returned None; return a module, or"),
        ({"inputs": lambda case, draw: [draw("x", 2)]}, "returned a list; return a dict of name →"),
    ],
)
def test_what_a_spec_s_own_functions_are_to_return_is_said(
    change: dict[str, Any], what: str
) -> None:
    """A forgotten `return`, of a layout that names parameters: not that these are not there."""
    layout = Layout(params={"*": Shard(0)})
    with pytest.raises(InvalidArgument, match=what):
        pose(replace(specs.row_linear(), layout=lambda case: layout, **change), candidates.CASE)
