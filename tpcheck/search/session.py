"""A session: warm ranks, whether they are to be trusted, and the checks that can run on them.

Every command starts here, and so do `tpcheck.verify` and the pytest fixture. What the canary came
to stays with the engine: one on which it was not found is not trusted in a later session either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tpcheck.check import Check
from tpcheck.engines.ahead import Ahead
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument, Untrusted, shown
from tpcheck.given import is_amount
from tpcheck.report import reasons
from tpcheck.search import canary
from tpcheck.search.collect import Aside, collect, runnable


@dataclass
class Session:
    """What a command runs on.

    Args:
        engine: where cases run.
        confirm: real ranks that confirm what the engine says, where its own are simulated.
        skipped: check → why it can't run here.
    """

    engine: Engine
    confirm: Engine | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def untrusted(self) -> str | None:
        """Why no verdict of this session counts; None where the canary was found."""
        engines = [self.engine] if self.confirm is None else [self.engine, self.confirm]
        reason = next(filter(None, map(_ask, engines)), None)
        # what its real ranks missed stays with the engine that is warm, too
        self.engine.untrusted = self.engine.untrusted or reason
        return reason

    def on_moment(self, call: Callable[[], None]) -> None:
        """Has `call` called now and then while cases are waited for."""
        for engine in filter(None, (self.engine, self.confirm)):
            engine.moment = call

    def require_trust(self) -> None:
        """Raises `Untrusted` where the canary was not found."""
        if (reason := self.untrusted) is not None:
            raise Untrusted(reason)

    def why_gone(self) -> str | None:
        """Why no case can run any more; None where the ranks are up, or new ones are now."""
        for engine in filter(None, (self.engine, self.confirm)):
            try:
                engine.start()
            except Exception as error:
                return reasons.engine_gone(engine.name, error)
        return None

    def collect(self, targets: Iterable[str], aside: dict[str, Aside] | None = None) -> list[Check]:
        """The checks that `targets` name and that can run here; the others are `skipped`. What does
        not import is put `aside`, as `collect` has it."""
        return self.keep_runnable(collect(targets, aside))

    def keep_runnable(self, checks: Iterable[Check]) -> list[Check]:
        """Those of `checks` that can run here; the others are `skipped`."""
        able, absent = runnable(checks)
        self.skipped |= absent
        return able


@contextlib.contextmanager
def open_session(
    engine: Engine | str,
    ranks: int = 4,
    *,
    time_limit: float = 30.0,
    preload: Iterable[str] = (),
    confirm: bool = False,
    ahead: Ahead | None = None,
) -> Iterator[Session]:
    """A session on a warm engine, which stays up, or on one of this kind, started for it.

    Args:
        ranks, time_limit, preload, ahead: of the engine to start, as `Engine` takes them.
        confirm: start as many of gloo's ranks beside an engine that simulates its own.
    """
    if not is_amount(time_limit):
        given = f"{time_limit:g}" if isinstance(time_limit, float) else shown(time_limit)
        raise InvalidArgument(f"time_limit={given}: give a positive number of seconds")
    if not isinstance(engine, (str, Engine)):
        raise InvalidArgument(f"engine={shown(engine)}: give an Engine, or the name of one")
    with contextlib.ExitStack() as stack:
        if isinstance(engine, str):
            about: dict[str, Any] = {"time_limit": time_limit, "preload": preload}
            engine = stack.enter_context(Engine(engine, ranks, **about, ahead=ahead))
        real = stack.enter_context(_real(engine)) if confirm and _simulates(engine) else None
        yield Session(engine, real)


def preload_of(checks: Iterable[Check]) -> set[str]:
    """What ranks load before they are forked, for the sake of these checks."""
    return {module for check in checks for module in check.spec.preload}


def _simulates(engine: Engine) -> bool:
    """Whether the engine's ranks are not processes: its verdicts need real ones to rest on."""
    return not engine.kind.processes


def _real(engine: Engine) -> Engine:
    """A gloo engine as large as `engine`."""
    return Engine("gloo", engine.ranks, time_limit=engine.time_limit, preload=engine.preload)


def _ask(engine: Engine) -> str | None:
    """What the canary says of an engine; it is asked once."""
    if not engine.canary_ran:
        engine.untrusted = canary.why_untrusted(engine)
        engine.canary_ran = True
    return engine.untrusted
