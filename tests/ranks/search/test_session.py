"""Where every run starts: an engine on which the canary was not found is never trusted again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.mutants import MUTANTS
from fixtures.parallel.linear import RowLinear
from tests import candidates
from tpcheck import Engine, verify
from tpcheck.cli.main import main
from tpcheck.engines import KINDS
from tpcheck.errors import Untrusted
from tpcheck.failed import CheckFailed
from tpcheck.mutation.matrix import kill_all
from tpcheck.runner.runner import Runner
from tpcheck.search import canary
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.options import Options
from tpcheck.search.replay import replay
from tpcheck.search.session import open_session
from tpcheck.verdict import Verdict

RIGHT = candidates.check(RowLinear)
WHY = "the canary was not found (a stub says so)"
QUICKLY = Options(examples=2, degrees=(2,), corpus=None)


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine of the test's own: it is not to be trusted afterwards."""
    with Engine("gloo", 2) as engine:
        yield engine


def survives(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Lets every canary survive; returns the engines that are asked."""
    asked: list[Engine] = []
    monkeypatch.setattr(canary, "why_untrusted", lambda engine: asked.append(engine) or WHY)
    return asked


def test_an_engine_whose_canary_was_not_found_is_never_trusted_again(
    engine: Engine, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = partial(verify, RIGHT, engine=engine, examples=2, degrees=(2,), corpus=corpus.folder)
    with monkeypatch.context() as stubbed:
        asked = survives(stubbed)
        with pytest.raises(CheckFailed, match="UNKNOWN  the canary was not found"):
            run()
    with pytest.raises(CheckFailed) as again:  # the canary would be found now
        run()
    assert str(again.value) == f"UNKNOWN  {WHY}" and again.value.results == []
    assert asked == [engine], "once per engine"


def test_an_engine_whose_canary_was_found_is_asked_once(
    engine: Engine, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: trust lasts as long."""
    asked: list[Engine] = []
    ask = canary.why_untrusted
    monkeypatch.setattr(canary, "why_untrusted", lambda engine: asked.append(engine) or ask(engine))
    for _ in range(2):
        (result,) = verify(RIGHT, engine=engine, examples=2, degrees=(2,), corpus=corpus.folder)
        assert result.verdict is Verdict.PASS
    assert asked == [engine]


def test_real_ranks_that_confirm_are_asked_for_the_canary_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(canary, "why_untrusted", lambda engine: asked.append(engine.name))
    with open_session("threads", 2, confirm=True) as session:
        assert session.untrusted is None
    assert asked == ["threads", "gloo"]


def test_mutants_are_not_run_where_the_canary_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    survives(monkeypatch)
    with pytest.raises(Untrusted, match="the canary was not found"):
        kill_all(MUTANTS[:2], partial(open_session, "gloo", 2), QUICKLY, jobs=2)


@pytest.mark.parametrize(
    "verb",
    [
        ["mutants", "fixtures/mutants::row_linear_averaged", "--examples", "2"],
        ["calibrate", "alarms", "properties/linear.py::row_linear", "--cases", "1", "--tp", "2"],
        ["calibrate", "sensitivity", "--tp", "2", "--runs", "1"],
        ["verify", "properties/linear.py::row_linear", "--examples", "2", "--tp", "2"],
    ],
    ids=lambda verb: " ".join(verb[:2]),
)
def test_a_verb_ends_unknown_where_the_canary_survives(
    verb: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    survives(monkeypatch)
    kept = ["--corpus", str(tmp_path)] if verb[-2] != "--runs" and verb[0] != "mutants" else []
    if verb[1] == "alarms":  # not where a campaign of this checkout's may be
        kept += ["--state", str(tmp_path / "campaign.jsonl")]
    with pytest.raises(SystemExit) as stop:
        main([*verb, *kept])
    assert stop.value.code == Verdict.UNKNOWN.exit_code
    shown = capsys.readouterr()
    assert shown.err == "" and WHY in shown.out and "UNKNOWN" in shown.out


def test_a_saved_case_that_passes_on_ranks_without_trust_does_not_pass(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.save(Saved("7f3a91", "row_linear", None, candidates.CASE, "gloo", [], {}))
    again = partial(
        replay, "7f3a91", check="properties/linear.py::row_linear", corpus=corpus.folder
    )
    assert again().result.verdict is Verdict.PASS
    survives(monkeypatch)
    result = again().result
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, WHY)


def test_the_canary_sees_ranks_that_compare_nothing(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Runner.run

    def blind(runner: Runner, *args: Any, **kwargs: Any) -> Any:
        result = ran(runner, *args, **kwargs)
        result.mismatches = []
        return result

    assert canary.why_untrusted(gloo) is None
    monkeypatch.setattr(Runner, "run", blind)
    assert canary.why_untrusted(gloo) == (
        "the canary (a row linear without its all-reduce) was not found"
    )


def test_the_canary_sees_a_trace_that_counts_nothing(
    gloo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Runner.run

    def deaf(runner: Runner, *args: Any, **kwargs: Any) -> Any:
        result = ran(runner, *args, **kwargs)
        result.trace = [[] for _ in result.trace]
        return result

    monkeypatch.setattr(Runner, "run", deaf)
    assert canary.why_untrusted(gloo) == "the trace of one all-reduce shows []"


def test_an_engine_that_simulates_ranks_is_confirmed_by_as_many_real_ones() -> None:
    with open_session("threads", 3, confirm=True) as session:
        assert session.confirm is not None
        assert session.confirm.kind is KINDS["gloo"] and session.confirm.ranks == 3
    with open_session("gloo", 2, confirm=True) as session:
        assert session.confirm is None
