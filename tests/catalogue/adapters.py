"""The matrix of environments: which verdicts the adapters give under releases of the frameworks,
and our kernels under those of Triton.

    python -m tests.catalogue.adapters            # all, an hour
    python -m tests.catalogue.adapters --only transformers-5.24 --examples 2

An environment is a venv below `.adapters/`: it has what is under test, and everything else of the
environment that runs this, after its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import ROOT
from tpcheck.case import DTYPES
from tpcheck.kernels.interpreter import KNOWN

#: Minor releases of transformers that are tried, the newest ones.
MINORS = 6
ARCHITECTURES = ("llama", "qwen3", "qwen3_moe", "gemma3_text", "gpt_oss", "glm4_moe")
_SWEEPS, _FRAMEWORKS = "properties/_sweeps", "properties/_frameworks"


@dataclass(frozen=True)
class Environment:
    """What is installed, and the checks that are run there.

    Args:
        name: of its folder, and in the table.
        requirement: as pip takes it.
        checks: as `tpcheck verify` takes them.
        options: of that command.
    """

    name: str
    requirement: str
    checks: tuple[str, ...]
    options: tuple[str, ...] = ("--tp", "2")


def _of(path: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{path}.py::{name}" for name in names)


KERNELS = (
    *("bias_gelu", "cross_entropy", "gemm", "layer_norm"),
    *("residual", "rms_norm", "rotary", "swiglu"),
)
OTHERS = (
    *(
        Environment(
            f"triton-{major}.{minor}",
            f"triton=={major}.{minor}.*",
            _of("properties/_kernels/ours", *(f"{kernel}_kernel" for kernel in KERNELS)),
            ("--dtype", ",".join(DTYPES)),
        )
        for major, minor in KNOWN
    ),
    Environment(
        "megatron-core",
        "megatron-core",
        _of(f"{_FRAMEWORKS}/megatron_core", "megatron_column", "megatron_row", "megatron_gpt")
        + _of(f"{_FRAMEWORKS}/megatron_moe", "megatron_moe"),
    ),
    Environment(
        "deepspeed",
        "deepspeed",
        _of(f"{_SWEEPS}/training/autotp", "autotp_column", "autotp_row"),
    ),
    Environment(
        "torchtitan",
        "torchtitan",
        _of(f"{_SWEEPS}/training/losses", "titan_cross_entropy")
        + _of(f"{_SWEEPS}/training/clipping", "titan_clipping"),
    ),
    Environment(
        "fairscale",
        "fairscale",
        _of(
            f"{_SWEEPS}/training/layers", "fairscale_column", "fairscale_row", "fairscale_embedding"
        )
        + _of(f"{_SWEEPS}/training/losses", "fairscale_cross_entropy"),
    ),
)


def last_minors(releases: Sequence[str], count: int = MINORS) -> list[str]:
    """The last release of each of the newest minor ones, the newest first.

    Args:
        releases: in any order; those that are no plain `major.minor.patch` are left out.
    """
    last: dict[tuple[int, int], int] = {}
    for release in releases:
        if match := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", release):
            major, minor, patch = map(int, match.groups())
            last[major, minor] = max(patch, last.get((major, minor), 0))
    newest = sorted(last.items(), reverse=True)[:count]
    return [f"{major}.{minor}.{patch}" for (major, minor), patch in newest]


def released(package: str) -> list[str]:
    """The releases that pip finds."""
    said = _run([sys.executable, "-m", "pip", "index", "versions", package])
    listed = re.search(r"Available versions: (.*)", said.stdout)
    if listed is None:
        raise SystemExit(f"pip finds no releases of {package}: {last_line(said.stderr)}")
    return listed[1].split(", ")


def environments(releases: Sequence[str]) -> Iterator[Environment]:
    """Those of transformers' releases, and the others."""
    checks = _of(f"{_SWEEPS}/transformers_tp_plans", *ARCHITECTURES)
    for release in releases:
        name = f"transformers-{release.rpartition('.')[0]}"
        yield Environment(name, f"transformers=={release}", checks)
    yield from OTHERS


def made(environment: Environment, folder: Path) -> Path | str:
    """The environment's python, or why there is none."""
    home = folder / environment.name
    python = home / "bin" / "python"
    if not (home / DONE).exists():
        venv.create(home, with_pip=False, clear=True)
        paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
        seen = f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n"
        Path(paths["purelib"], "zz_seen.pth").write_text(seen)
        said = _run([str(python), "-m", "pip", "install", "--quiet", environment.requirement])
        if said.returncode:
            return f"{environment.requirement} can't be installed: {last_line(said.stderr)}"
        (home / DONE).touch()
    return python


#: Marks an environment that is complete: another is made anew.
DONE = "complete"


def verified(environment: Environment, python: Path, examples: int, seconds: int) -> list[Row]:
    """Runs the checks."""
    out = python.parent.parent / "report.json"
    out.unlink(missing_ok=True)
    command = [str(python), "-m", "tpcheck", "verify", *environment.checks, *environment.options]
    command += ["--examples", str(examples), "--json", str(out)]
    try:
        said = _run(command, seconds)
    except subprocess.TimeoutExpired:
        return [Row(environment.name, "", "UNKNOWN", f"took longer than {seconds} s")]
    if not out.exists():
        return [Row(environment.name, "", "UNKNOWN", last_line(said.stderr or said.stdout))]
    return list(rows(environment.name, json.loads(out.read_text())))


@dataclass(frozen=True)
class Row:
    """One cell: a check in an environment, its verdict, and what explains it."""

    environment: str
    check: str
    verdict: str
    why: str = ""


def rows(environment: str, report: Mapping[str, Any]) -> Iterator[Row]:
    """What a report says of each check: the diagnosis of a failure, known findings that were met,
    the reason of one that was skipped."""
    for check in report["checks"]:
        found = check.get("counterexample") or {}
        code = (found.get("diagnosis") or {}).get("code", "")
        met = [row for row in check.get("known_findings", ()) if row.get("state") == "known"]
        pages = ", ".join(sorted({Path(row["page"]).stem for row in met}))
        why = code or (f"known: {pages}" if pages else check.get("reason") or "")
        yield Row(environment, check["name"], check["verdict"], why)
    for skipped in report.get("skipped", ()):
        yield Row(environment, skipped["name"], "SKIPPED", skipped["reason"])


def table(found: Sequence[Row]) -> str:
    """In Markdown, a row per check of an environment."""
    head = ["| environment | check | verdict | |", "|---|---|---|---|"]
    return "\n".join(
        head + [f"| {r.environment} | {r.check} | {r.verdict} | {r.why} |" for r in found]
    )


def last_line(said: str) -> str:
    return (said.strip().splitlines() or ["it says nothing"])[-1][:200]


def _run(command: Sequence[str], seconds: int = 1800) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, timeout=seconds, capture_output=True, text=True, check=False
    )


def main(argv: Sequence[str] | None = None) -> int:
    """1 where a check fails, or can't be decided."""
    parser = argparse.ArgumentParser(prog="python -m tests.catalogue.adapters")
    parser.add_argument("--envs", type=Path, default=ROOT / ".adapters")
    parser.add_argument("--only", default="", help="environments whose name contains this")
    parser.add_argument("--releases", default="", help="of transformers, as in 5.24.0,5.23.0")
    parser.add_argument("--examples", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=1800, help="of an environment, at most")
    given = parser.parse_args(argv)
    releases = (
        given.releases.split(",") if given.releases else last_minors(released("transformers"))
    )
    found: list[Row] = []
    for environment in environments(releases):
        if given.only not in environment.name:
            continue
        python = made(environment, given.envs)
        if isinstance(python, str):
            found.append(Row(environment.name, "", "SKIPPED", python))
        else:
            found += verified(environment, python, given.examples, given.seconds)
        print(table(found).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(found))
    return int(any(row.verdict in ("FAIL", "UNKNOWN") for row in found))


if __name__ == "__main__":
    raise SystemExit(main())
