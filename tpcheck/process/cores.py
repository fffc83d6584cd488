"""How many processors a process may use: those of the machine, less those that it is kept from."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

#: Where Linux shows control groups, and which of them this process is in.
GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cores(groups: Path = GROUPS, own: Path = OWN) -> int:
    """At least one: as many as the process may run on, and as a container's share of time is worth.

    Args:
        groups, own: the files of control groups, and the list of those of this process.
    """
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux alone
    allowed = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([allowed, *_kept(groups, own)]))


@functools.cache
def _kept(groups: Path, own: Path) -> list[int]:
    return list(_shares(groups, own))


def _shares(groups: Path, own: Path) -> Iterator[int]:
    """Of each control group that the process is in, what it may use in whole processors."""
    for names, place in around(own):
        if names is None:  # of version 2, where a group has a part of each that it is in
            quota, _, period = first_line(groups / place / "cpu.max").partition(" ")
        elif "cpu" in names:
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = (first_line(groups / "cpu" / place / file) for file in files)
        else:
            continue
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and "-1": no limit
            yield int(quota) // int(period)


def around(own: Path) -> Iterator[tuple[list[str] | None, PurePosixPath]]:
    """The control groups that a process is in, by the list of its own: what each is about (None of
    version 2: everything), and where it is; after each those that it is in."""
    for line in _lines(own):
        number, names, group = [*line.split(":", 2), "", ""][:3]
        inside = PurePosixPath(group.lstrip("/"))
        for place in (inside, *inside.parents):
            yield (None if number == "0" else names.split(",")), place


def first_line(file: Path) -> str:
    """Of a file; empty where there is none."""
    return "".join(_lines(file)[:1])


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return file.read_text().splitlines()
    return []
