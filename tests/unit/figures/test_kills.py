"""The kill matrix as data: what a reader must see stands first."""

from __future__ import annotations

from tpcheck.case import Case
from tpcheck.figures.kills import Matrix, Row
from tpcheck.report import mutants as report


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


def test_a_mutant_that_can_not_run_has_not_survived() -> None:
    def row(name: str, killed: bool, trouble: str | None) -> Row:
        return Row(name, killed, (), 0, 0.1, "", "", ("shard-order",), trouble=trouble)

    rows = [
        row("ran", False, None),
        row("stuck", False, "raised\nX"),
        row("c", True, "x"),
    ]
    found = Matrix(rows)
    assert [r.mutant for r in found.survivors()] == ["ran"]
    assert [r.mutant for r in found.troubled()] == ["stuck"]
    shown = report.matrix(found)
    assert "UNKNOWN  stuck" in shown and "SURVIVED ran" in shown
    assert found.to_dict()["rows"][0]["trouble"] is None
