"""What compute-sanitizer writes is read as accesses outside of memory, of the case that made it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tpcheck.errors import TROUBLE
from tpcheck.evidence import Stray
from tpcheck.kernels import sanitizer
from tpcheck.protocol import sanitized
from tpcheck.vocabulary import Access

# as compute-sanitizer 2025.3 wrote it of a kernel without a mask on an H200, less its backtrace
READ = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at _forward+0x4b0 in bias_gelu.py:31
=========     by thread (63,0,0) in block (28,0,0)
=========     Access to 0x7f6932a1ba46 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6932a1ac00 of size 3,654 bytes
"""
OTHER_THREAD = READ.replace("COMPUTE-SANITIZER", "").replace("(63,", "(62,")
FIRST = Stray("_forward", 31, (28, 0, 0), Access.LOAD, "an allocation of 3654 bytes", 3654, 1)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    monkeypatch.setenv(sanitized.LOG, str(path))
    return path


def test_an_access_has_its_kernel_line_program_and_what_is_near() -> None:
    assert list(sanitizer.strays(READ)) == [FIRST]


@pytest.mark.parametrize(
    ("line", "offset"),
    [
        ("and is 1,234 bytes before the nearest allocation at 0x7f of size 40 bytes", -1234),
        ("and is 8 bytes inside the nearest allocation at 0x7f of size 40 bytes", 8),
    ],
)
def test_offsets_are_from_the_start_of_what_is_near(line: str, offset: int) -> None:
    text = "".join(
        f"========= {line}\n" if "nearest" in one else f"{one}\n" for one in READ.splitlines()
    )
    (found,) = sanitizer.strays(text.replace("read", "atomic"))
    assert (found.offset, found.access) == (offset, Access.ATOMIC)


def test_threads_at_one_place_are_lanes_of_one_access() -> None:
    (found,) = sanitizer.strays(READ + OTHER_THREAD)
    assert found.lanes == 2
    two = sanitizer.strays(READ + READ.replace(":31", ":44").replace("read", "write"))
    assert [(one.line, one.access) for one in two] == [(31, Access.LOAD), (44, Access.STORE)]


def test_a_function_without_a_file_is_told_by_its_name() -> None:
    """Mutants are compiled from strings: `in n   total'>:31`."""
    (found,) = sanitizer.strays(READ.replace("bias_gelu.py", "n        total'>"))
    assert found == FIRST
    (found,) = sanitizer.strays(READ.replace(" in bias_gelu.py:31", ""))
    assert (found.kernel, found.line) == ("_forward", 0)


def test_a_case_is_told_of_what_came_since_it_began(log: Path) -> None:
    sanitizer.begin()
    assert sanitizer.stray() is None, "there is no log yet"
    log.write_text(READ)
    assert sanitizer.stray() == FIRST
    sanitizer.begin()
    assert sanitizer.stray(wait=0.1) is None, "it was the case before"


def test_without_the_tool_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sanitized.LOG, raising=False)
    sanitizer.begin()
    assert sanitizer.stray(wait=60.0) is None


def _tpcheck(tool: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {sanitized.ASKED: tool, "PATH": path}
    command = [sys.executable, "-m", "tpcheck", "verify", "--version"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("racecheck", "tpcheck: TPCHECK_SANITIZER=racecheck is not one of memcheck\n"),
        (
            "memcheck",
            "tpcheck: TPCHECK_SANITIZER=memcheck needs compute-sanitizer, of NVIDIA's CUDA "
            "toolkit, on PATH\n",
        ),
    ],
)
def test_what_can_not_be_had_is_refused_in_a_line(tool: str, said: str, tmp_path: Path) -> None:
    done = _tpcheck(tool, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (TROUBLE, "", said)


def test_the_run_is_below_the_tool_with_a_log_and_its_exit_code_counts(tmp_path: Path) -> None:
    stand_in = tmp_path / "compute-sanitizer"
    stand_in.write_text(
        "#!/bin/sh\n"
        'echo "$@"\n'
        f'echo "$PYTORCH_NO_CUDA_MEMORY_CACHING ${{{sanitized.LOG}%/log}}"\n'
        "exit 5\n"
    )
    stand_in.chmod(0o755)
    done = _tpcheck("memcheck", f"{tmp_path}:/usr/bin:/bin")
    words, set_up = done.stdout.splitlines()
    assert done.returncode == 5 and done.stderr == ""
    assert words.startswith("--tool memcheck --target-processes all")
    assert words.endswith("-m tpcheck verify --version")
    caching, folder = set_up.split()
    assert caching == "1" and not Path(folder).exists(), "it is gone with the run"


def test_a_replay_is_to_run_below_it_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpcheck.cli.options import alone_if_sanitized
    from tpcheck.errors import InvalidArgument
    from tpcheck.search.corpus import Corpus

    monkeypatch.setenv(sanitized.ASKED, "memcheck")
    assert Corpus().command("abc123") == "TPCHECK_SANITIZER=memcheck tpcheck replay abc123"
    assert alone_if_sanitized(1) == 1
    with pytest.raises(InvalidArgument, match="--jobs 2 does not go with TPCHECK_SANITIZER"):
        alone_if_sanitized(2)
    monkeypatch.delenv(sanitized.LOG)
    assert alone_if_sanitized(2) == 2 and Corpus().command("abc123") == "tpcheck replay abc123"
