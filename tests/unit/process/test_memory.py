"""How much memory a process holds, and may still take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpcheck.process.memory import available, held

GB = 2**30


def left(folder: Path, own: str, machine: int | None = 16, **files: str) -> int | None:
    """Of a process in these groups, of which `a__b__c` is the file a/b/c, in GB."""
    (folder / "own").write_text(own)
    if machine is not None:
        text = f"MemTotal: 999 kB\nMemAvailable:   {machine * 2**20} kB\n"
        (folder / "meminfo").write_text(text)
    for name, text in files.items():
        place = folder / "groups" / name.replace("__", "/").replace("memory_", "memory.", 1)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    found = available(folder / "groups", folder / "own", folder / "meminfo")
    return None if found is None else found // GB


def test_what_the_machine_has_left(tmp_path: Path) -> None:
    assert left(tmp_path, "") == 16
    (tmp_path / "meminfo").unlink()
    assert left(tmp_path, "", machine=None) is None


@pytest.mark.parametrize(("most", "gb"), [("max", 16), (f"{6 * GB}", 4), (f"{GB}", 0)])
def test_a_containers_part(tmp_path: Path, most: str, gb: int) -> None:
    files = {"job__memory_max": f"{most}\n", "job__memory_current": f"{2 * GB}\n"}
    assert left(tmp_path, "0::/job/step\n", **files) == gb


def test_of_the_first_version(tmp_path: Path) -> None:
    files = {"limit": f"{8 * GB}\n", "usage": f"{GB}\n"}
    place = tmp_path / "groups" / "memory" / "job"
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"memory.{name}_in_bytes").write_text(text)
    assert left(tmp_path, "4:cpu,memory:/job\n") == 7


def test_what_a_process_holds() -> None:
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmRSS:"))
    assert held(os.getpid()) == pytest.approx(1024 * int(line.split()[1]), rel=0.1)
    assert held(2**22 + 1) is None
