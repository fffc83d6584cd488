"""The page for CI: what it shows are files that parse, and what they run is what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.documents.blocks import blocks
from tests.documents.commands import bad_commands
from tpcheck import __version__

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / "docs" / "examples" / "ci"
PAGE = (ROOT / "docs" / "ci.md").read_text()
SHOWN = [block.text for block in blocks(PAGE) if block.language == "yaml"]


def read(file: str) -> Any:
    return yaml.safe_load((FOLDER / file).read_text())


def steps(job: str) -> list[dict[str, Any]]:
    return list(read("github.yml")["jobs"][job]["steps"])


def step(job: str, action: str) -> dict[str, Any]:
    """The first step that uses this action."""
    found: dict[str, Any] = next(s for s in steps(job) if s.get("uses", "").startswith(action))
    return found["with"]  # type: ignore[no-any-return]


def shell_lines() -> list[str]:
    """Every line that a runner would have a shell run, and what pre-commit runs."""
    jobs = read("github.yml")["jobs"]
    lines = [s["run"] for job in jobs.values() for s in job["steps"] if "run" in s]
    for job in read("gitlab.yml").values():
        lines += [*job.get("before_script", []), *job.get("script", [])]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    added = read("pre-commit.yml")["repos"][0]["hooks"][0]["args"]
    return lines + [" ".join([hook["entry"], *added]) for hook in hooks]


def test_the_page_shows_the_files_and_nothing_else() -> None:
    there = {file.read_text() for file in FOLDER.iterdir()}
    assert len(SHOWN) == len(there) == 3 and set(SHOWN) == there
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "```yaml" in page.read_text()]
    assert [page.name for page in pages] == ["ci.md"]


def bad(lines: list[str]) -> list[str]:
    plain = [re.sub(r"\$\{\{.*?\}\}|\$\w+", "7", line) for line in lines]
    return list(bad_commands("```sh\n" + "\n".join(plain) + "\n```\n"))


def test_every_line_that_they_run_is_one_that_the_command_line_takes() -> None:
    assert len(shell_lines()) == 11 and bad(shell_lines()) == []


@pytest.mark.parametrize("line", ["tpcheck verify checks --junit", "tpcheck check", "nose ."])
def test_the_twin_a_line_that_it_does_not_take_is_seen(line: str) -> None:
    assert len(bad([*shell_lines(), line])) == 1


def test_they_install_the_wheel_of_this_version() -> None:
    installed = [line for line in shell_lines() if line.startswith("pip") and line[-1] != "."]
    wheel = f"pip install wheels/tpcheck-{__version__}-py3-none-any.whl"
    assert installed == [wheel] * 3 and f"dist/tpcheck-{__version__}-py3-none-any.whl" in PAGE


def test_the_gate_is_the_same_each_time_and_the_night_is_not() -> None:
    tpcheck = [line for line in shell_lines() if line.startswith("tpcheck")]
    gates = [line for line in tpcheck if line.startswith("tpcheck verify")]
    nights = [line for line in tpcheck if line.startswith("tpcheck fuzz")]
    assert len(gates) == 3 and len(nights) == 2
    assert all("--time-budget" in line and "--seed" not in line for line in gates)
    assert all(re.search(r"--seed \$", line) for line in nights)


def test_what_the_night_saves_is_what_the_gate_reads() -> None:
    """A cache is found again by its paths and by the beginning of its key."""
    saved, read_ = step("nightly", "actions/cache/save"), step("gate", "actions/cache/restore")
    assert saved["path"] == read_["path"] == ".tpcheck"
    assert saved["key"].startswith(read_["restore-keys"])
    jobs = read("gitlab.yml")
    assert jobs[".tpcheck"]["cache"]["paths"] == [".tpcheck/"]
    assert jobs["tpcheck"]["cache"] == {"policy": "pull"}
    assert jobs["tpcheck-nightly"]["cache"] == {"when": "always"}, "a finding is exit code 1"


def test_what_is_uploaded_may_begin_with_a_dot() -> None:
    for job in ("gate", "nightly"):
        upload = step(job, "actions/upload-artifact")
        assert ".tpcheck/corpus" in upload["path"] and upload["include-hidden-files"] is True


def test_the_reports_are_where_they_are_looked_for() -> None:
    gate = next(s["run"] for s in steps("gate") if "verify" in s.get("run", ""))
    assert "--junit tpcheck.xml" in gate and "--github" in gate
    assert "tpcheck.xml" in step("gate", "actions/upload-artifact")["path"]
    assert read("gitlab.yml")["tpcheck"]["artifacts"]["reports"] == {"junit": "tpcheck.xml"}


def test_the_hook_is_the_one_that_the_sample_names() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert read("pre-commit.yml")["repos"][0]["hooks"][0]["id"] == hook["id"]
    assert hook["language"] == "system" and hook["pass_filenames"] is False


def test_the_line_of_the_sample_is_the_checks() -> None:
    file, line = re.findall(r"^::error file=(.*?),line=(\d+),", PAGE, re.MULTILINE)[0]
    text = Path(ROOT / file).read_text().splitlines()[int(line) - 1]
    assert text.startswith("row_without_all_reduce = ")
