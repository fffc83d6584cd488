"""The kill matrix as data: what a reader must see stands first."""

from __future__ import annotations

from tpcheck.case import Case
from tpcheck.figures.kills import Matrix, Row


def test_the_matrix_puts_survivors_and_misnamed_ones_first() -> None:
    def row(name: str, killed: bool, diagnosis: str) -> Row:
        return Row(
            name, killed, ("output",), 1, 0.1, Case().describe(), diagnosis, ("shard-order",)
        )

    rows = [
        row("a_named", True, "shard-order"),
        row("b_unclassified", True, "unclassified"),
        row("c_misnamed", True, "summed-twice"),
        row("d_survivor", False, ""),
    ]
    ordered = [r.mutant for r in Matrix(rows).ordered()]
    assert ordered == ["d_survivor", "c_misnamed", "b_unclassified", "a_named"]
    sums = Matrix(rows).to_dict()
    assert (sums["killed"], sums["named"], sums["misnamed"]) == (3, 1, 1)
