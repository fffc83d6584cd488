"""What a launcher says to a process, and what is made of it."""

from __future__ import annotations

import socket

import pytest

from tpcheck.engines import launch as of_launches
from tpcheck.engines import require
from tpcheck.engines.launch import Launch, launch, launched_by
from tpcheck.errors import EngineUnavailable


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asking:
        return int(asking.getsockname()[1])


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
        ({}, "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set; run it as torchrun"),
        (TOLD | {"RANK": "one"}, "RANK='one', WORLD_SIZE='4'.*are not numbers"),
        (TOLD | {"RANK": "4"}, "RANK=4 is not one of WORLD_SIZE=4"),
        (TOLD | {"MASTER_PORT": "295000"}, "MASTER_PORT=295000 is not a port"),
        (TOLD | {"MASTER_PORT": ""}, "MASTER_PORT is not set"),
    ],
)
def test_what_is_wrong_is_one_line(told: dict[str, str], said: str) -> None:
    with pytest.raises(EngineUnavailable, match=said) as caught:
        launch(told)
    assert len(str(caught.value).splitlines()) == 1


def test_more_ranks_than_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (TOLD | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    assert require("torchrun", 4).processes
    with pytest.raises(EngineUnavailable, match="8 ranks were asked for, and 4 processes started"):
        require("torchrun", 8)


def test_a_process_that_is_not_the_first_runs_no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineUnavailable, match="this is the process of rank 1, and rank 0's runs"):
        require("torchrun", 4)


def _interrupted(seconds: float) -> None:
    raise KeyboardInterrupt


def test_a_store_that_nobody_keeps_yet_is_waited_for_where_signals_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_launches, "MEET", 1.0)
    monkeypatch.setattr(of_launches.time, "sleep", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        Launch(1, 2, "127.0.0.1", free_port()).store()
    with pytest.raises(KeyboardInterrupt):
        Launch(0, 2, "127.0.0.1", free_port(), hosted=True).store()


def test_so_is_what_the_first_process_says(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    store = Launch(0, 2, "127.0.0.1", port).store()
    follower = Launch(1, 2, "127.0.0.1", port)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(of_launches, "MEET", 1.0)
        patched.setattr(of_launches.time, "sleep", _interrupted)
        follower.said("word")
    store.set("word", "hello")
    assert follower.said("word") == b"hello"
    monkeypatch.setattr(of_launches, "MEET", 0.3)
    with pytest.raises(EngineUnavailable, match=r"rank 0 did not come within 0\.3 s"):
        follower.said("another")


def test_who_was_started_several_times_knows() -> None:
    assert launched_by({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}) == "torchrun"
    assert launched_by({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1"}) is None
    assert launched_by({"WORLD_SIZE": "2"}) is None
