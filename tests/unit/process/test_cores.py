"""How many processors a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpcheck.process.cores import cores


@pytest.fixture(autouse=True)
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def told(folder: Path, own: str, **files: str) -> int:
    """Of a process in these groups, of which `a__b__c` is the file a/b/c."""
    (folder / "own").write_text(own)
    for name, text in files.items():
        place = folder / "groups" / name.replace("__", "/").replace("cpu_", "cpu.")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return cores(folder / "groups", folder / "own")


def test_all_that_it_may_run_on(tmp_path: Path) -> None:
    assert cores(tmp_path / "none", tmp_path / "none") == 16
    assert told(tmp_path, "0::/\n") == 16


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000", 16), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("", 16)],
)
def test_a_containers_share(tmp_path: Path, quota: str, count: int) -> None:
    assert told(tmp_path, "0::/job\n", job__cpu_max=f"{quota}\n") == count


def test_a_group_has_no_more_than_the_one_that_it_is_in(tmp_path: Path) -> None:
    files = {"job__cpu_max": "300000 100000\n", "job__step__cpu_max": "max 100000\n"}
    assert told(tmp_path, "0::/job/step\n", **files) == 3


@pytest.mark.parametrize(("quota", "count"), [("-1", 16), ("600000", 6)])
def test_of_the_first_version(tmp_path: Path, quota: str, count: int) -> None:
    files = {"cpu__job__cpu_cfs_quota_us": quota, "cpu__job__cpu_cfs_period_us": "100000"}
    own = "3:memory:/other\n2:cpu,cpuacct:/job\n"
    assert told(tmp_path, own, **files) == count
