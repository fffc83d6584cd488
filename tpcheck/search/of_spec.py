"""The strategy of a spec's cases: what its `cases` draws, as `dims` and `dtypes` narrow it, with
integers and modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.space import Space
from tpcheck.spec import Spec

#: Draws of a narrowed spec, all of which can't be, after which there is no case. With fewer, a
#: degree with few cases is said to have none; with more, one without any takes half a minute.
IN_VAIN = 200


def cases_of(spec: Spec, space: Space) -> SearchStrategy[Case]:
    """The strategy of a spec's cases in this space.

    Raises:
        InvalidArgument: `cases` is neither a function nor a list of cases, or a case in the list
            needs more ranks than there are.
    """
    if callable(spec.cases):
        asked = replace(space, dims=spec.dims, dtypes=spec.asked(space.dtypes))
        strategy = spec.cases(asked)
        if not isinstance(strategy, SearchStrategy):
            raise InvalidArgument(
                f"spec {spec.name!r}: cases(space) returned {type(strategy).__name__}; "
                f"return a Hypothesis strategy, as tpcheck.strategies.cases(...) is"
            )
        if spec.dims or spec.dtypes:
            strategy = _narrowed(spec, strategy, _Tries())
        if spec.linear and spec.norm is None:
            strategy = st.tuples(strategy, _OFTEN).map(_perhaps_integers)
        if modes := spec.usual_modes:
            drawn = st.one_of(st.just("train"), st.sampled_from(modes))
            # the last choice: were it the first one, cases would be less unlike each other
            strategy = st.tuples(strategy, drawn).map(_in_mode)
        return strategy
    if not isinstance(spec.cases, Sequence) or not spec.cases:
        raise InvalidArgument(
            f"spec {spec.name!r}: cases is neither a function nor a list of cases"
        )
    for case in spec.cases:
        if not isinstance(case, Case):
            given = type(case).__name__
            raise InvalidArgument(f"spec {spec.name!r}: cases holds a {given}, not a Case")
        if case.world_size > space.ranks:
            raise InvalidArgument(
                f"spec {spec.name!r}: a listed case needs {case.world_size} ranks "
                f"({case.describe()}) and the engine has {space.ranks}; "
                f"give --ranks {case.world_size} (pytest: --tpcheck-ranks)"
            )
    return st.sampled_from(list(spec.cases))


@dataclass
class _Tries:
    """How many cases of a strategy were drawn that can't be; None once one can."""

    in_vain: int | None = 0


@st.composite
def _narrowed(draw: Any, spec: Spec, strategy: SearchStrategy[Any], tries: _Tries) -> Case:
    """Cases that are as the spec's own `dims` and `dtypes` say, and can be.

    Raises:
        InvalidArgument: `cases` has drawn one by something else.
    """
    if tries.in_vain == IN_VAIN:
        draw(st.nothing())
    case = required(draw(strategy))
    if (why := spec.lacks(case)) is not None:
        raise InvalidArgument(
            f"spec {spec.name!r} draws a case of {why}: dims= and dtypes= are for specs whose "
            "cases(space) returns strategies.cases(space, …)"
        )
    if not _can_be(spec, case):
        tries.in_vain = None if tries.in_vain is None else tries.in_vain + 1
        reject()
    tries.in_vain = None
    return case


def _can_be(spec: Spec, case: Case) -> bool:
    """Whether dims that are drawn otherwise still fit together; what raises is told where the case
    is posed."""
    try:
        return spec.requires is None or spec.requires(case) is None
    except Exception:
        return True


def _in_mode(drawn: tuple[Case, str]) -> Case:
    return replace(required(drawn[0]), mode=drawn[1])


_OFTEN = st.sampled_from([False, False, True])


def _perhaps_integers(drawn: tuple[Case, bool]) -> Case:
    case, integers = required(drawn[0]), drawn[1]
    return replace(case, integers=True, magnitude=0) if integers else case


def required(case: object) -> Case:
    """What a strategy drew, which must be a case.

    Raises:
        InvalidArgument: it is something else.
    """
    if not isinstance(case, Case):
        raise InvalidArgument(
            f"the strategy of cases draws a {type(case).__name__}, not a Case; give one as "
            "tpcheck.strategies.cases(...) is"
        )
    return case
