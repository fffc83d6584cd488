"""What a file does to the process that is the driver changes no verdict of another file, and costs
no report. All of it is `python -m tests.catalogue.torture drivers`."""

from __future__ import annotations

import pytest

from tests.catalogue.torture import drivers

#: Tests of `process/` have each way in which it is kept apart.
TRIED = (("a method of a class beside it", "in its reference", True),)


@pytest.mark.parametrize(
    "one",
    [
        one
        if (one.what, one.place, one.first) in TRIED
        else pytest.param(one, marks=pytest.mark.sweep)
        for one in drivers.runs()
    ],
    ids=lambda one: one.label,
)
def test_a_file_changes_nothing_for_another(one: drivers.Run) -> None:
    row = drivers.row(0, one)
    assert not row.wrong, (row.seen, row.exceptions)
