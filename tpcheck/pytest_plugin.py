"""The pytest plugin: the fixture `tpcheck_engine`, options, and one clear section per failure.

Loading it imports neither torch nor Hypothesis: a suite that uses no fixture of ours pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tpcheck", "verification of tensor-parallel code")
    group.addoption("--tpcheck-engine", default="gloo", help="gloo (default), nccl or threads")
    group.addoption("--tpcheck-ranks", type=int, default=4, help="size of the world (default 4)")
    group.addoption(
        "--tpcheck-time-limit", type=float, default=30.0, help="seconds that one case may take"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tpcheck: a verification that runs on ranks")


@pytest.fixture(scope="session")
def tpcheck_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A warm engine for the whole session (one per worker under pytest-xdist)."""
    from contextlib import ExitStack

    from tpcheck.errors import InvalidArgument
    from tpcheck.report.visible import one_line
    from tpcheck.search.session import open_session

    option = request.config.getoption
    kind, ranks = option("--tpcheck-engine"), option("--tpcheck-ranks")
    with ExitStack() as stack:
        try:
            session = stack.enter_context(
                open_session(kind, ranks, time_limit=option("--tpcheck-time-limit"))
            )
        except InvalidArgument as error:
            pytest.fail(f"tpcheck: {one_line(str(error))}", pytrace=False)
        yield session.engine


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """A failed check shows its report instead of a traceback through tpcheck."""
    outcome = yield
    report = outcome.get_result()
    error = call.excinfo.value if call.excinfo else None
    if report.when != "call" or not type(error).__module__.startswith("tpcheck."):
        return
    from tpcheck.report.visible import one_line, visible

    kinds = {kind.__name__ for kind in type(error).__mro__}  # by name: their modules stay unloaded
    if "CheckFailed" in kinds:
        report.longrepr = f"tpcheck\n\n{visible(str(error))}\n"
    elif "InvalidArgument" in kinds:
        report.longrepr = f"tpcheck: {one_line(str(error))}"
