"""A run's folder: locked while its driver lives, swept when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tpcheck.engines import folder
from tpcheck.engines.folder import RunFolder
from tpcheck.errors import EngineUnavailable, NoRoom
from tpcheck.protocol.leftovers import INSIDE, end_marked


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Shared memory and the folder for temporary files, of this test's own."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(folder, "SHARED", shared)
    monkeypatch.setattr(folder.tempfile, "gettempdir", lambda: str(temporary))
    return shared, temporary


def abandoned(place: Path, name: str = "tpcheck-run-abcdefgh") -> Path:
    """What a driver that was killed leaves."""
    (place / name).mkdir(mode=0o700)
    (place / name / "case1.safetensors").write_bytes(b"x")
    return place / name


def test_a_start_sweeps_what_dead_runs_left_and_nothing_else(places: tuple[Path, Path]) -> None:
    dead = [abandoned(place) for place in places]
    kept = [
        abandoned(places[0], "tpcheck-results"),
        abandoned(places[0], "tpcheck-run-of-mine"),
        abandoned(places[1], "tpcheck-new-abcdefgh"),  # being made
    ]
    living = RunFolder()
    assert not any(path.exists() for path in dead)
    assert all(path.exists() for path in kept)
    RunFolder().remove()
    assert living.path.exists(), "its driver lives"
    living.remove()
    assert not living.path.exists()


def test_what_was_being_made_long_ago_is_swept(places: tuple[Path, Path]) -> None:
    old = abandoned(places[0], "tpcheck-new-abcdefgh")
    os.utime(old, (time.time() - 2 * folder.UNLOCKED,) * 2)
    folder.sweep()
    assert not old.exists()


def test_what_candidates_leave_is_removed_and_nothing_that_it_leads_to(tmp_path: Path) -> None:
    run = RunFolder()
    (mine := tmp_path / "mine").mkdir()
    (mine / "file").write_text("mine")
    (run.path / "large").write_bytes(b"x" * 2**20)
    (run.path / "deep" / "deeper").mkdir(parents=True)
    (run.path / "linked").symlink_to(mine)
    os.mkfifo(run.path / "pipe")
    (run.path / "loop").symlink_to("loop")
    run.clear()
    assert list(run.path.iterdir()) == []
    assert (mine / "file").exists()
    run.remove()


def dug(folder: Path, deep: int = 1200) -> None:
    """Folders in folders, too many for a path, or for a function that calls itself."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(deep):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT, dir_fd=here))
    os.close(here)


def test_folders_however_deep_are_removed(places: tuple[Path, Path]) -> None:
    run = RunFolder()
    dug(run.path)
    run.clear()
    assert list(run.path.iterdir()) == []
    dug(run.path)
    run.remove()
    assert not run.path.exists()
    dug(dead := abandoned(places[0]))
    folder.sweep()
    assert not dead.exists()


def test_rights_that_a_candidate_took_away_are_given_back() -> None:
    run = RunFolder()
    for again in (run.renew, run.clear):
        (run.path / "deep").mkdir(mode=0o000, exist_ok=True)
        run.path.chmod(0o000)
        assert not again() and run.path.stat().st_mode & 0o777 == 0o700
    run.remove()


def test_a_link_in_the_folders_place_leads_nowhere(tmp_path: Path) -> None:
    (mine := tmp_path / "mine").mkdir()
    (mine / "file").write_text("mine")
    run, moved = RunFolder(), tmp_path / "moved"
    (run.path / "case1.safetensors").write_text("a case's")
    run.path.rename(moved)
    run.path.symlink_to(mine)
    run.clear()
    assert (mine / "file").exists() and list(moved.iterdir()) == []
    assert run.renew() and not run.path.is_symlink()
    assert not moved.exists(), "it is the run's, wherever it is"
    run.path.rename(moved)
    run.path.symlink_to(mine)
    run.remove()
    assert (mine / "file").exists() and not moved.exists() and not run.path.is_symlink()


def test_links_and_files_of_that_name_are_left_alone(places: tuple[Path, Path]) -> None:
    shared, temporary = places
    (temporary / "mine").mkdir()
    (shared / "tpcheck-run-aaaaaaaa").symlink_to(temporary / "mine")
    (shared / "tpcheck-run-bbbbbbbb").write_text("mine")
    folder.sweep()
    assert (temporary / "mine").exists() and len(list(shared.iterdir())) == 2


def test_a_folder_that_was_removed_is_made_anew_under_its_name() -> None:
    run = RunFolder()
    assert not run.renew()
    run.path.rmdir()
    assert run.renew() and run.path.is_dir() and not run.renew()
    run.path.rmdir()
    run.path.write_text("a file")
    assert run.renew() and run.path.is_dir()
    folder.sweep()
    assert run.path.exists(), "it is locked again"
    run.remove()


def test_small_shared_memory_is_left_to_others(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RunFolder().path.parent == places[0]
    monkeypatch.setattr(folder, "ROOM", 2**62)
    assert RunFolder().path.parent == places[1]


def test_without_a_place_it_is_one_line(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "SHARED", places[0] / "none")
    monkeypatch.setattr(folder.tempfile, "gettempdir", lambda: str(places[1] / "none"))
    with pytest.raises(EngineUnavailable, match="set TMPDIR"):
        RunFolder()


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder()
    run.require_room()
    monkeypatch.setattr(folder, "LEAST", 2**62)
    with pytest.raises(NoRoom, match="no room is left"):
        run.require_room()
    run.remove()


def test_processes_of_a_run_are_ended_and_no_others() -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours, other = (
        subprocess.Popen(sleeps, env=os.environ | {INSIDE: mark}, start_new_session=True)
        for mark in ("tpcheck-run-aaaaaaaa", "tpcheck-run-aaaaaaaab")
    )
    try:
        while any(f"{INSIDE}=".encode() not in _environment(p.pid) for p in (ours, other)):
            time.sleep(0.01)
        end_marked("tpcheck-run-aaaaaaaa")
        assert ours.wait(timeout=10) == -9
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def _environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()
