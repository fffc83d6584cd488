"""The pytest plugin: the fixture `tpcheck_engine`, options, and one clear section per failure.

Loading it imports neither torch nor Hypothesis: a suite that uses no fixture of ours pays nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tpcheck.given import number, whole

if TYPE_CHECKING:
    from tpcheck.cli.signals import Signals
    from tpcheck.engines.engine import Engine

_SIGNALS: pytest.StashKey[Signals] = pytest.StashKey()
#: Seconds that workers of pytest-xdist have to end in an interrupted session. They would finish
#: their tests first, which nobody waits for: longer only delays the end.
WORKERS_LIMIT = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tpcheck", "verification of tensor-parallel code")
    group.addoption(
        "--tpcheck-engine", default="gloo", help="gloo (default), nccl, gloo-cuda or threads"
    )
    group.addoption("--tpcheck-ranks", type=whole, default=4, help="size of the world (default 4)")
    group.addoption(
        "--tpcheck-time-limit", type=number, default=30.0, help="seconds that one case may take"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tpcheck: a verification that runs on ranks")
    if hasattr(config, "workerinput"):
        # of pytest-xdist, which would first finish what it imports, and its test
        from tpcheck.process import lineage

        lineage.die_with(os.getppid())
    if getattr(config.option, "numprocesses", None):
        # of pytest-xdist, which has the engines in its workers: they end with this process
        from tpcheck.cli import signals

        until_the_end = contextlib.ExitStack()
        config.stash[_SIGNALS] = until_the_end.enter_context(signals.heard())
        config.add_cleanup(until_the_end.close)


@pytest.fixture(scope="session")
def tpcheck_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A warm engine for the whole session (one per worker under pytest-xdist)."""
    from tpcheck.cli import signals
    from tpcheck.errors import InvalidArgument
    from tpcheck.report.visible import one_line
    from tpcheck.search.session import open_session

    option = request.config.getoption
    kind, ranks = option("--tpcheck-engine"), option("--tpcheck-ranks")
    with contextlib.ExitStack() as stack:
        # SIGTERM and SIGHUP end the session as Ctrl-C does: reports are written, ranks are gone
        request.config.stash[_SIGNALS] = stack.enter_context(signals.heard())
        why = ""
        try:
            session = stack.enter_context(
                open_session(kind, ranks, time_limit=option("--tpcheck-time-limit"))
            )
        except InvalidArgument as error:
            why = one_line(str(error))
        if why:  # not in the block: pytest would show what was raised there, too
            pytest.fail(f"tpcheck: {why}", pytrace=False)
        yield session.engine


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session that a signal has ended says so by its exit code."""
    heard = session.config.stash.get(_SIGNALS, None)
    if heard is None:
        return
    heard.deaf = True  # from here on everything ends by itself
    if heard.first is None:
        return
    distributed = session.config.pluginmanager.get_plugin("dsession")
    if (workers := getattr(distributed, "nodemanager", None)) is not None:
        workers.EXIT_TIMEOUT = WORKERS_LIMIT
    if heard.first != signal.SIGINT:  # pytest has a code of its own for that
        session.exitstatus = heard.exit_code


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """A failed check shows its report instead of a traceback through tpcheck."""
    outcome = yield
    report = outcome.get_result()
    error = call.excinfo.value if call.excinfo else None
    if not type(error).__module__.startswith("tpcheck."):  # of a test, or of a fixture of its
        return
    from tpcheck.report.visible import one_line, visible

    kinds = {kind.__name__ for kind in type(error).__mro__}  # by name: their modules stay unloaded
    if "CheckFailed" in kinds:
        report.longrepr = f"{_in_short(error)}\n\n{visible(str(error))}\n"
    elif "InvalidArgument" in kinds:
        report.longrepr = f"tpcheck: {one_line(str(error))}"


def _in_short(error: Any) -> str:
    """The first line of a failure, which is all that pytest's summary shows: the first check that
    does not pass, and why; "tpcheck" alone where none has come to anything."""
    from tpcheck.report.text import in_short, title
    from tpcheck.verdict import Verdict

    failed = sorted(error.results, key=lambda result: result.verdict is not Verdict.FAIL)
    first = next((result for result in failed if result.verdict is not Verdict.PASS), None)
    if first is None:
        return "tpcheck"
    named = f"{title(first)}: " if first.counterexample is not None else ""
    return f"tpcheck: {named}{in_short(first)}"
