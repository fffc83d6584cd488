"""What a launcher says to a process, and what is made of it."""

from __future__ import annotations

import pytest

from tpcheck.engines import require
from tpcheck.engines.launch import Launch, launch, launched_by
from tpcheck.errors import EngineUnavailable

TOLD = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host1", "MASTER_PORT": "29500"}


def test_torchrun_keeps_the_store() -> None:
    of_agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    found = launch(TOLD | of_agent)
    assert found == Launch(1, 4, "host1", 29500, hosted=True, attempt=2)
    assert found.store_of(3) == "tcp://host1:29500/tpcheck/2/world3"


def test_slurm_has_names_of_its_own() -> None:
    told = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert launch(told) == Launch(0, 2, "a", 1)
    assert launch(told | {"RANK": "1"}).rank == 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT is not set; run it as torchrun"),
        (TOLD | {"RANK": "one"}, "RANK='one', WORLD_SIZE='4'.*are not numbers"),
        (TOLD | {"RANK": "4"}, "RANK=4 is not one of WORLD_SIZE=4"),
        (TOLD | {"MASTER_PORT": ""}, "MASTER_PORT is not set"),
    ],
)
def test_what_is_wrong_is_one_line(told: dict[str, str], said: str) -> None:
    with pytest.raises(EngineUnavailable, match=said) as caught:
        launch(told)
    assert len(str(caught.value).splitlines()) == 1


def test_more_ranks_than_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    assert require("torchrun", 4).processes
    with pytest.raises(EngineUnavailable, match="8 ranks were asked for, and 4 processes started"):
        require("torchrun", 8)


def test_who_was_started_several_times_knows() -> None:
    assert launched_by({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}) == "torchrun"
    assert launched_by({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1"}) is None
    assert launched_by({"WORLD_SIZE": "2"}) is None
