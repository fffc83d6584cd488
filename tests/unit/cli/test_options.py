"""Options are read, and refused, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpcheck.cli import options
from tpcheck.errors import InvalidArgument


@pytest.mark.parametrize("name", ["checks.py", "new.py", "LOUD.PY"])
def test_a_report_never_replaces_code(tmp_path: Path, name: str) -> None:
    """As in `--json checks.py`, where the report's own name was forgotten."""
    (tmp_path / "checks.py").write_text("x = 1\n")
    with pytest.raises(InvalidArgument, match=r"can't write the report .*: it is a Python file"):
        options._writable(tmp_path / name)


def test_a_report_may_go_to_a_device_in_a_folder_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    ask = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_dir() and ask(path, mode)
    )
    assert options._writable(tmp_path / "link") == tmp_path / "link"
    with pytest.raises(InvalidArgument, match="can't write the report"):
        options._writable(tmp_path / "report.json")
    with pytest.raises(InvalidArgument, match="can't keep cases"):
        options._keeps(tmp_path / "cases")


@pytest.mark.parametrize(
    ("processors", "engine", "ranks", "checks", "jobs"),
    [
        (1, "gloo", 2, 90, 1),
        (2, "gloo", 4, 90, 2),  # one alone leaves processors idle
        (6, "gloo", 4, 90, 2),
        (2, "gloo", 4, 10, 1),
        (16, "gloo", 4, 90, 4),
        (16, "gloo", 8, 90, 2),
        (128, "threads", 4, 90, options.JOBS),
        (16, "gloo", 4, 5, 2),  # each loads torch for two checks or more
        (16, "gloo", 4, 1, 1),
        (16, "nccl", 4, 90, 1),
        (16, "torchrun", 4, 90, 1),
    ],
)
def test_as_many_checks_at_a_time_as_the_processors_carry(
    monkeypatch: pytest.MonkeyPatch,
    processors: int,
    engine: str,
    ranks: int,
    checks: int,
    jobs: int,
) -> None:
    monkeypatch.setattr(options, "cores", lambda: processors)
    assert options.carried(engine, ranks, lambda: checks) == jobs


def test_checks_are_not_counted_where_it_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "cores", lambda: 1)
    assert options.carried("gloo", 4, lambda: pytest.fail("counted")) == 1
