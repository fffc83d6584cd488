"""The strategy of a check's cases: that of its spec, with what the check itself asks of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.check import Check, dp_can_be
from tpcheck.search.of_spec import cases_of, required
from tpcheck.space import Space


def strategy_of(
    check: Check, degree: int, degrees: Sequence[int], dtypes: tuple[str, ...], ranks: int
) -> SearchStrategy[Case]:
    """Cases of one TP degree.

    Where the check saves, half of them are saved at another of `degrees`, one that divides this one
    or is a multiple of it: sizes that are drawn for the larger degree fit the smaller one.

    Args:
        degrees: those of the whole run.
        ranks: how many there are.

    Raises:
        InvalidArgument: as of `cases_of`.
    """
    own = _drawn(check, Space((degree,), dtypes, ranks))
    if check.save is None or not callable(check.spec.cases):
        return own
    elsewhere = []
    for other in sorted({*degrees} - {degree}):
        smaller, larger = sorted((degree, other))
        if larger % smaller == 0:
            fitting = _drawn(check, Space((larger,), dtypes, ranks))
            saved = st.builds(_saved_at, fitting, st.just(degree), st.just(other))
            elsewhere.append(saved.filter(lambda case: _can_be(check, case)))
    return st.one_of(own, st.one_of(elsewhere)) if elsewhere else own


def _drawn(check: Check, space: Space) -> SearchStrategy[Case]:
    """Those of the spec; what it draws, and not what it lists, is in its memory formats, and of one
    dp coordinate where there can't be two."""
    own, formats = cases_of(check.spec, space), check.spec.memory
    if callable(check.spec.cases) and not dp_can_be(check):
        own = own.map(_without_dp)
    return own.map(partial(_laid_out, formats)) if formats and callable(check.spec.cases) else own


def _laid_out(formats: tuple[str, ...], drawn: Case) -> Case:
    case = required(drawn)
    return case if case.memory in formats else replace(case, memory=formats[0])


def _can_be(check: Check, case: Case) -> bool:
    """Whether the spec has a case of both degrees; what raises is told where the case is posed."""
    requires = check.spec.requires
    try:
        return requires is None or not any(map(requires, (case, case.when_saved)))
    except Exception:
        return True


def _saved_at(case: Case, degree: int, other: int) -> Case:
    return replace(required(case), mesh={**case.mesh, "tp": degree}, saved_at=other)


def _without_dp(drawn: Case) -> Case:
    case = required(drawn)
    return replace(case, mesh={axis: n for axis, n in case.mesh.items() if axis != "dp"})
