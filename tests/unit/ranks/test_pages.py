"""Huge pages for what forked processes share."""

from __future__ import annotations

import mmap
import os
import platform
from pathlib import Path

import pytest

from tpcheck.ranks import pages

SIZE = 8 * pages.HUGE
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def has_huge_pages() -> bool:
    """Whether the system says so: of Linux, from 6.1 on."""
    if platform.system() != "Linux" or not SETTING.exists():
        return False
    release = [int(part) for part in platform.release().split("-")[0].split(".")[:2]]
    return release >= [6, 1] and "[never]" not in SETTING.read_text()


def huge_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


def told_by_a_child(memory: mmap.mmap) -> list[bytes]:
    """Whether huge pages have come, and what is in the memory then."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        before = huge_bytes()
        found = pages.collapse()
        came = found > 0 and huge_bytes() - before >= SIZE // 2
        os.write(write, b"%d %d" % (came, memory[:] == FILLED))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        said = told.read().split()
    os.waitpid(child, 0)
    return said


FILLED = bytes(range(256)) * (SIZE // 256)


def test_memory_is_put_on_huge_pages_and_holds_what_it_held() -> None:
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = FILLED
        came, same = told_by_a_child(memory)
    assert same == b"1"
    assert came == (b"1" if has_huge_pages() else b"0")


def test_a_system_without_them_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "COLLAPSE", -1)
    assert pages.collapse() == 0
