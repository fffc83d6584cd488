"""A run's files: removed, emptied, filled, made into something else."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from tests.catalogue.torture.fault import PASS, Effect, Here, Place, kind
from tpcheck.protocol.leftovers import INSIDE

_HERE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE)


def run_folder() -> Path:
    """The folder of the run that this rank is part of."""
    name = os.environ[INSIDE]
    assert name.startswith("tpcheck-run-")
    places = (Path("/dev/shm") / name, Path(tempfile.gettempdir()) / name)
    return next((place for place in places if place.exists()), places[0])


def _files() -> list[Path]:
    return [path for path in run_folder().rglob("*") if path.is_file()]


@kind(Effect.MEDDLES, at=_HERE[1:])
def removes_the_runs_folder(here: Here) -> None:
    """Removes the run's folder with all that is in it."""
    shutil.rmtree(run_folder(), ignore_errors=True)


@kind(Effect.MEDDLES, "file", "link", "loop", at=_HERE)
def replaces_the_runs_folder(here: Here) -> None:
    """Puts a file or a link where the run's folder was."""
    folder = run_folder()
    shutil.rmtree(folder, ignore_errors=True)
    if here.variant == "file":
        folder.write_text("not a folder")
    else:
        folder.symlink_to("/nowhere" if here.variant == "link" else folder)


@kind(Effect.MEDDLES, "*.safetensors", "store*", "*.log", "*", at=_HERE)
def removes_files_of_the_run(here: Here) -> None:
    """Removes bundles, the store, or logs."""
    for path in run_folder().glob(here.variant):
        if path.is_file():
            path.unlink(missing_ok=True)


@kind(Effect.MEDDLES, at=_HERE)
def empties_files_of_the_run(here: Here) -> None:
    """Truncates every file of the run, also those that are mapped."""
    for path in _files():
        os.truncate(path, 0)


@kind(Effect.MEDDLES, b"\xff", b"{", b"\0", at=_HERE)
def overwrites_files_of_the_run(here: Here) -> None:
    """Writes garbage over the beginning of every file of the run."""
    for path in _files():
        with path.open("r+b") as file:
            file.write(here.variant * 64)


@kind(Effect.HARMLESS, 64)
def fills_the_runs_folder(here: Here) -> None:
    """Leaves a file of many megabytes in the run's folder."""
    (run_folder() / "large").write_bytes(b"x" * here.variant * 2**20)


@kind(Effect.HARMLESS, 2000)
def fills_the_runs_folder_with_files(here: Here) -> None:
    """Leaves many small files in the run's folder, and folders in folders."""
    deep = run_folder() / "deep"
    for index in range(here.variant):
        (run_folder() / f"many{index}").touch()
        if index < 50:
            deep = deep / "deep"
    deep.mkdir(parents=True, exist_ok=True)


@kind(Effect.MEDDLES, 0o000, 0o400, at=_HERE)
def locks_the_runs_folder(here: Here) -> None:
    """Takes the rights to the run's folder away."""
    run_folder().chmod(here.variant)


@kind(Effect.HARMLESS)
def leaves_a_pipe_in_the_runs_folder(here: Here) -> None:
    """Leaves a named pipe, a link to itself and a link to / in the run's folder."""
    folder = run_folder()
    with contextlib.suppress(FileExistsError):  # another rank's, or an earlier case's
        os.mkfifo(folder / "pipe")
    for name, target in (("loop", "loop"), ("root", "/proc")):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(target)


@kind(Effect.LEAVES, expects=PASS)
def holds_the_runs_lock(here: Here) -> None:
    """Opens and locks the run's folder, as its driver does."""
    import fcntl

    descriptor = os.open(run_folder(), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.set_inheritable(descriptor, True)


@kind(Effect.MEDDLES, at=_HERE)
def swaps_the_store(here: Here) -> None:
    """Replaces the file by which ranks meet by an empty one."""
    for path in run_folder().glob("store*"):
        path.unlink(missing_ok=True)
        path.touch()


@kind(Effect.HARMLESS, 3000)
def digs_in_the_runs_folder(here: Here) -> None:
    """Makes folders in folders in the run's, too many for a path."""
    inner = os.open(run_folder(), os.O_RDONLY)
    for _ in range(here.variant):
        with contextlib.suppress(FileExistsError):
            os.mkdir("deep", dir_fd=inner)
        below = os.open("deep", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = below
    os.close(inner)


@kind(Effect.MEDDLES, at=(Place.FINALIZE,))
def moves_the_runs_folder(here: Here) -> None:
    """Moves the run's folder and puts a link to another one in its place, whose files stay."""
    folder = run_folder()
    other = Path(os.environ.get("TORTURE_FOLDER", tempfile.gettempdir())) / "another"
    other.mkdir(exist_ok=True)
    (other / "file").touch()
    if folder.is_symlink():
        return  # another rank's
    with contextlib.suppress(OSError):
        folder.rename(f"{folder}-{os.getpid()}")
        folder.symlink_to(other)


@kind(Effect.MEDDLES, at=(Place.FORWARD, Place.NODE))
def pipes_in_place_of_its_files(here: Here) -> None:
    """Puts named pipes where a rank's tensors are written and read."""
    for folder in [path for path in run_folder().iterdir() if path.is_dir()]:
        for rank in range(4):
            with contextlib.suppress(OSError):
                os.mkfifo(folder / f"rank{rank}.safetensors")
