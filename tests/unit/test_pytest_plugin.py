"""The plugin, without a session of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.report.test_text import FAILED
from tpcheck import pytest_plugin
from tpcheck.failed import CheckFailed
from tpcheck.process import lineage
from tpcheck.verdict import CheckResult, Verdict


@pytest.mark.parametrize("is_worker", [True, False])
def test_a_worker_of_xdist_ends_with_the_session_from_its_start(
    is_worker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it imports may take seconds, before any fixture of ours is asked for."""
    asked: list[bool] = []
    monkeypatch.setattr(lineage, "die_with", lambda _: asked.append(True))
    config: Any = SimpleNamespace(option=None, addinivalue_line=lambda *_: None)
    if is_worker:
        config.workerinput = {}
    pytest_plugin.pytest_configure(config)
    assert asked == [True] * is_worker


def reported(error: Exception, when: str = "call") -> str:
    """What the session says of a test that raises this."""
    report: Any = SimpleNamespace(when=when, longrepr=None)
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=error))
    made = pytest_plugin.pytest_runtest_makereport(SimpleNamespace(), call)  # type: ignore[arg-type]
    next(made)
    with pytest.raises(StopIteration):
        made.send(SimpleNamespace(get_result=lambda: report))
    return str(report.longrepr)


def test_the_first_line_of_a_failure_which_the_summary_shows_says_what_it_is() -> None:
    right = CheckResult("right", Verdict.PASS, "gloo")
    late = CheckResult("late", Verdict.UNKNOWN, "gloo", reason="time was up")
    said = reported(CheckFailed("the report", [right, late, FAILED])).splitlines()
    assert said[0].startswith(f"tpcheck: {FAILED.name}: summed-twice in output (")
    assert said[1:] == ["", "the report"]
    said = reported(CheckFailed("the report", [right, late])).splitlines()
    assert said[0] == "tpcheck: UNKNOWN late: time was up"
    assert reported(CheckFailed("UNKNOWN  no engine", [])) == "tpcheck\n\nUNKNOWN  no engine\n"
    said = reported(CheckFailed("the report", [right, late]), "setup")  # in a fixture
    assert said.startswith("tpcheck: UNKNOWN late: time was up")
    assert reported(ValueError("theirs"), "setup") == "None"
