"""What one file of checks does to the process that is the driver of another's, when it is imported
or when its reference is asked: the other's verdicts, and the reports, are what they are alone."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.catalogue.torture.commands import environment, tpcheck
from tests.catalogue.torture.judge import Row, Seen, troubles
from tests.catalogue.torture.records import Records

#: What is done → by these lines. Plain code of users first, then what only a hostile one has.
LINES = {
    "a folder put on the path": 'sys.path.insert(0, str(HERE / "of_a"))',
    "the path emptied": "sys.path.clear(); import colorsys",
    "the finders emptied": "sys.meta_path.clear()",
    "a variable set": 'os.environ["TORTURED"] = "1"',
    "a variable set, and a module loaded": 'os.environ["TORTURED"] = "1"; import wave',
    "the environment emptied": "os.environ.clear()",
    "warnings are errors": 'import warnings; warnings.simplefilter("error")',
    "another folder": 'os.chdir("/")',
    "the umask": "os.umask(0o777)",
    "a number of a module beside it": "beside.SCALE = 1.001",
    "a function of a module beside it": "beside.scaled = lambda x: 1.001 * x",
    "a method of a class beside it": "beside.Scaled.__call__ = lambda self, x: 1.001 * x",
    "a function of torch": "import torch; torch.nn.functional.linear = lambda x, w, b=None: 2 * x",
    "a method of an optimizer": "import torch; torch.optim.SGD.step = lambda self: None",
    "a schedule's": (
        "import torch; torch.optim.lr_scheduler.ExponentialLR.get_lr = lambda self: [7.0]"
    ),
    "another generator": (
        "import torch; torch.default_generator = torch.random.default_generator = torch.Generator()"
    ),
    "a fork": "os.fork()",
    "the default dtype": "import torch; torch.set_default_dtype(torch.float16)",
    "stdout replaced": 'sys.stdout = open(os.devnull, "w")',
    "stdout redirected": "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
    "no file may grow": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))",
    "few descriptors": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 4096))",
    "a thread that does not end": (
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"
    ),
    "a daemon thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True)"
        ".start()"
    ),
    "an end at exit": "import atexit; atexit.register(os._exit, 0)",
    "signals ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a limit of recursion": "sys.setrecursionlimit(200)",
    "the process ended": "os._exit(0)",
    "the process ended, by posix": "import posix; posix._exit(0)",
    "another program": 'os.execv("/bin/true", ["true"])',
    "an exit": "sys.exit(0)",
}
#: What ends the file's own check, or the run before it begins where it is done on import.
ENDS = ("the process ended", "the process ended, by posix", "another program", "an exit")
#: What its own reference then lacks: any verdict of its own will do.
SPOILS = (
    "a number of a module beside it",
    "a function of a module beside it",
    "a method of a class beside it",
    "a function of torch",
    "the default dtype",
    "the path emptied",
    "the finders emptied",
    "a limit of recursion",
    "few descriptors",
    "no file may grow",
    *ENDS,
)
PLACES = ("on import", "in its reference")
#: Seconds after which a run is said not to end.
PATIENCE = 120.0

_BESIDE = '''"""What both files import."""
from fixtures.parallel.linear import RowLinear
from tests.candidates import linear
from tests.catalogue.torture import known

SCALE = 1.0

def scaled(x):
    return x * SCALE

class Scaled:
    def __call__(self, x):
        return scaled(x)

class Right(RowLinear):
    """As its reference, whatever `beside` and the environment hold."""
    def forward(self, x):
        return factor() * Scaled()(super().forward(x))

class Wrong(known.WithoutItsReduction):
    def forward(self, x):
        return factor() * Scaled()(super().forward(x))

def factor():
    import os
    return 1.5 if "TORTURED" in os.environ else 1.0
'''
_A = """import os, sys
from pathlib import Path
import beside
from tpcheck import Check, specs
HERE = Path(__file__).parent

def reference(case):
    {in_reference}
    return specs.row_linear().reference(case)

def build(case, mesh):
    return beside.linear(beside.RowLinear)(case, mesh)

a = Check(specs.row_linear(), build, overrides={{"reference": reference}})
{on_import}
"""
_B = '''import sys, warnings
from pathlib import Path
import beside
from tpcheck import Check, specs
sys.path.insert(0, str(Path(__file__).parent / "of_b"))

def reference(case):
    warnings.warn("a note")
    import lazily
    Path(__file__).with_name("asked").write_text("yes")
    return specs.row_linear().reference(case)

def forward(module, inputs):
    """The reference's result, scaled as the candidates scale theirs."""
    y = module(*inputs.values())
    is_own = isinstance(module, beside.RowLinear)
    return y if is_own else beside.factor() * beside.Scaled()(y)

def build(cls, case, mesh):
    import lazily
    return beside.linear(cls)(case, mesh)

def right_one(case, mesh):
    return build(beside.Right, case, mesh)

def wrong_one(case, mesh):
    return build(beside.Wrong, case, mesh)

own = {"reference": reference, "forward": forward}
right = Check(specs.row_linear(), right_one, overrides=own)
wrong = Check(specs.row_linear(), wrong_one, overrides=own)
'''


@dataclass(frozen=True)
class Run:
    """Two files, one of which does something, given in an order."""

    what: str
    place: str
    first: bool

    @property
    def label(self) -> str:
        return f"{self.what}, {self.place}, given {'first' if self.first else 'last'}"


def runs() -> Iterator[Run]:
    """All of them. On import what ends the process is told before anything runs."""
    for what in LINES:
        for place in PLACES:
            if not (what in ENDS and place == "on import"):
                yield from (Run(what, place, first) for first in (True, False))


def row(number: int, one: Run) -> Row:
    """What a run came to."""
    begun = time.monotonic()
    found = Row("gloo", number, one.what, one.label)
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        folder = Path(name)
        write(folder, one)
        files = ["a.py", "b.py"] if one.first else ["b.py", "a.py"]
        words = ["--tp", "2", "--examples", "1", "--ranks", "2", "--dtype", "float64"]
        command = tpcheck("verify", *files, *words, "--json", "report.json")
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            found.exceptions.append("it did not end")
        else:
            _judge(found, one, folder, done)
    found.seconds = round(time.monotonic() - begun, 3)
    return found


def write(folder: Path, one: Run) -> None:
    """The files, and two of one name of which each has its own on the path."""
    lines = LINES[one.what]
    on_import, in_reference = (lines, "pass") if one.place == "on import" else ("", lines)
    (folder / "beside.py").write_text(_BESIDE)
    (folder / "a.py").write_text(_A.format(on_import=on_import, in_reference=in_reference))
    (folder / "b.py").write_text(_B)
    for name in ("of_a", "of_b"):
        (folder / name).mkdir()
        broken = "raise ImportError('of another file')" if name == "of_a" else ""
        (folder / name / "lazily.py").write_text(broken)


def _judge(found: Row, one: Run, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    report = folder / "report.json"
    told = json.loads(report.read_text()) if report.exists() else {"checks": []}
    verdicts = {check["name"]: check for check in told["checks"]}
    expected = {"right": ["PASS"], "wrong": ["FAIL"], "a": ["PASS"]}
    if one.what in SPOILS:
        expected["a"] = ["PASS", "FAIL", "UNKNOWN"]
    for name, due in expected.items():
        check = verdicts.get(name, {})
        role = "fault" if name == "a" else "follow-up"
        verdict, reason = check.get("verdict", "none"), str(check.get("reason") or "")
        found.seen.append(Seen(name, role, tuple(due), verdict, reason[:300]))
        if check and f"{verdict:<8}{name} " not in done.stdout:
            found.exceptions.append(f"{name} is not told of: {done.stdout[-500:]}")
    if "Traceback" in done.stdout + done.stderr:
        found.exceptions.append(f"a traceback: {done.stderr[-1000:]}")
    if done.returncode != 1:
        found.exceptions.append(f"exit code {done.returncode}: {done.stderr[-500:]}")


def main(records: Records) -> bool:
    """Runs all of them; whether nothing is wrong."""
    planned = list(runs())
    done = {(found.number, found.label) for found in records.rows()}
    for number, one in enumerate(planned):
        if (number, one.label) not in done:
            found = row(number, one)
            records.add(found)
            mark = "WRONG" if found.wrong else "ok"
            print(f"{number:3} {mark:5} {found.seconds:5.1f} s  {one.label}", flush=True)
    wanted = {(number, one.label) for number, one in enumerate(planned)}
    wrong = troubles([f for f in records.rows() if (f.number, f.label) in wanted])
    print("\n" + "\n".join(wrong or [f"{len(planned)} runs: nothing is wrong"]))
    return not wrong
