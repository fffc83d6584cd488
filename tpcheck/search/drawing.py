"""Drawing cases by Hypothesis, as a part of a machine: from a strategy and a key, or from choices
that it made before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import getpid
from typing import Any
from unittest import SkipTest
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.control import current_build_context
from hypothesis.database import ExampleDatabase, choices_to_bytes
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import engine as conjecture
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.reporting import with_reporter
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.oracle.limit import end_child, one_process
from tpcheck.search.of_spec import required

#: Of Hypothesis's own constants, those that each kind of draw permits: kept from round to round,
#: and apart from what a user's own tests have drawn. They would be looked for in each round.
_PERMITTED: LRUCache[Any, Any] = LRUCache(1024)


class Given(ExampleDatabase):
    """What one run of Hypothesis is to begin with; nothing that it finds is kept.

    Args:
        entries: choices, as Hypothesis writes them.
    """

    def __init__(self, entries: Iterable[bytes]) -> None:
        super().__init__()
        self.entries = list(entries)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """All of them as cases that may yet shrink: what has shrunk would end the run."""
        return list(self.entries) if key.endswith(b".secondary") else []

    def save(self, key: bytes, value: bytes) -> None:
        """Not kept here."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Not kept here."""


def sample(strategy: SearchStrategy[Case], count: int, key: str) -> list[Case]:
    """Up to `count` different cases, the same for the same `key`; empty where there are none.

    Numbers are drawn anew: each case gets a seed of its own, since Hypothesis prefers small ones,
    and the first case of every sample is the dullest.
    """
    found: list[Case] = []
    with contextlib.suppress(Unsatisfiable):
        each(strategy, count, key, found.append)
    return reseeded(found[:count], key)


def each(
    strategy: SearchStrategy[Case],
    count: int,
    key: str,
    examine: Callable[[Case], None],
    *,
    phases: Sequence[Phase] = (Phase.generate, Phase.shrink),
    database: ExampleDatabase | None = None,
) -> None:
    """`examine` is called with up to `count` cases, the same for the same `key`; where it raises,
    with ever duller ones for which it may raise again, and then it has raised.

    Args:
        phases: what Hypothesis does; `Phase.reuse` draws by the choices in `database`.

    Raises:
        HypothesisException: the strategy can't be drawn from; `Unsatisfiable` where it has no case.
    """

    @settings(
        max_examples=count,
        database=database,
        deadline=None,
        phases=list(phases),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @seed(key)  # below the settings: it takes the database out of those that are there
    @given(strategy)
    def run(case: Case) -> None:
        end_child(own)
        examine(required(case))

    # else Hypothesis takes a digest of the function's source, 4 ms, for each that it draws
    vars(run)["_hypothesis_internal_database_key"] = key.encode()
    own = getpid()
    with one_process(), _alone():
        try:
            run()
        except SkipTest as error:  # Hypothesis's own: there was none
            raise Unsatisfiable(str(error)) from None


def shrink_from(
    strategy: SearchStrategy[Case],
    drawn: bytes,
    count: int,
    key: str,
    examine: Callable[[Case], None],
) -> None:
    """As `each`, of the case that these choices draw, and of ever duller ones where it raises."""
    phases = (Phase.reuse, Phase.shrink)
    each(strategy, count, key, examine, phases=phases, database=Given([drawn]))


def choices() -> bytes:
    """Those that Hypothesis made for the case that is examined: they draw it again."""
    return choices_to_bytes(current_build_context().data.choices)


def reseeded(cases: Sequence[Case], key: str) -> list[Case]:
    """The same cases, each with a seed of its own that follows from `key`."""
    return [
        dataclasses.replace(case, seed=_digest(f"{key} {index}"))
        for index, case in enumerate(cases)
    ]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hypothesis as a part of a machine: it reports nothing, and what it draws and shrinks depends
    on the strategy and the key alone.

    By itself it takes some of its numbers from the literals of whatever local code is loaded (the
    next check's file would change this one's cases), and stops shrinking by the clock. It has no
    setting for either.
    """
    with (
        warnings.catch_warnings(),
        with_reporter(lambda _: None),
        patch.object(providers, "_get_local_constants", Constants),
        patch.object(providers, "CONSTANTS_CACHE", _PERMITTED),
        patch.object(conjecture, "MAX_SHRINKING_SECONDS", math.inf),
    ):
        warnings.simplefilter("ignore")
        yield
