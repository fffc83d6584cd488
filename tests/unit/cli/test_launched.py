"""What a launcher has started several times: `verify` alone makes ranks of it."""

from __future__ import annotations

import pytest

from tests.ranks.cli.commands import complaint
from tpcheck.cli.verify import Run, _require_launch
from tpcheck.errors import InvalidArgument


@pytest.mark.parametrize(
    "command", [["fuzz", "gone.py"], ["replay", "ab12"], ["mutants"], ["audit", "gone.py"]]
)
def test_other_commands_would_each_run_everything(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = complaint(capsys, *command)
    assert "torchrun has started several of this" in said
    assert "run it once, without torchrun" in said


@pytest.mark.parametrize(
    "command",
    [["fuzz", "gone.py"], ["mutants"], ["calibrate", "alarms"], ["calibrate", "sensitivity", "x"]],
)
def test_other_commands_have_no_such_engine(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "torchrun is for tpcheck verify" in complaint(capsys, *command, "--engine=torchrun")


@pytest.mark.parametrize(
    ("ranks", "jobs", "degrees", "said"),
    [
        (0, 2, (2,), "--jobs is 1 with --engine torchrun"),
        (8, 1, (2,), "--ranks 8: the launcher has started 4"),
        (0, 1, (2, 8), "tp degree 8 needs 8 ranks and the launcher has started 4"),
    ],
)
def test_the_world_is_all_of_a_launch(
    ranks: int, jobs: int, degrees: tuple[int, ...], said: str
) -> None:
    run = Run(seed=0, engine="torchrun", ranks=ranks, jobs=jobs)
    with pytest.raises(InvalidArgument, match=said):
        _require_launch(run, 4, degrees)


def test_so_it_is_where_nothing_else_is_said() -> None:
    for ranks in (0, 4):
        run = Run(seed=0, engine="torchrun", ranks=ranks)
        _require_launch(run, 4, (1, 4))
        assert run.ranks == 4
