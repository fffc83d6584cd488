"""Counts of what was judged: beside one another in a case, after one another over cases."""

from __future__ import annotations

from tpcheck.evidence.judged import Judged, over
from tpcheck.vocabulary import Kind, Unjudged

WHOLE = Judged(4, 4, cases=1, judged_in=1)
NONE = Judged(6, 0, cases=1, judged_in=0, why={Unjudged.OVERFLOW: 6})
EMPTY = Judged(0, 0, cases=1, judged_in=1)
Y = Kind.OUTPUT, "y"


def test_passes_of_one_case_are_one_case() -> None:
    both = WHOLE.beside(NONE)
    assert both == Judged(10, 4, cases=1, judged_in=1, why={Unjudged.OVERFLOW: 6})
    assert both.beside(NONE).why == {Unjudged.OVERFLOW: 12}
    assert not both.complete and not both.blind


def test_cases_add_up_and_each_tensor_has_its_own() -> None:
    found = over([{Y: WHOLE}, {Y: NONE, (Kind.PARAM, "y"): NONE}, {}])
    assert found[Y] == Judged(10, 4, cases=2, judged_in=1, why={Unjudged.OVERFLOW: 6})
    assert not found[Y].blind and found[Kind.PARAM, "y"].blind


def test_what_is_empty_was_judged_and_what_is_extra_need_not_be() -> None:
    assert EMPTY.complete and not EMPTY.blind
    # of what has elements, it says nothing
    assert EMPTY.after(NONE).blind and NONE.after(EMPTY).blind and not EMPTY.after(WHOLE).blind
    assert not Judged(3, 0, 1, 0, {Unjudged.EXTRA: 3}).blind
