"""Ranks are forked from a process that has imported the candidate, once; where what the import did
would not be the same in each of them, each imports it by itself."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import candidates
from tests.ranks.engines.test_faults import left, marked
from tpcheck.check import Check
from tpcheck.engines import template_process
from tpcheck.engines.engine import Engine
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.report.as_json import detail
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict

MODULE = """
import os
import signal
from tests import candidates

if "TPCHECK_INSIDE_A_RANK" in os.environ:
    with open(__file__ + ".imports", "a") as imports:
        print(os.getpid(), file=imports)
{effect}

def build(case, mesh):
{built}
    return candidates.linear(candidates.Row)(case, mesh)

class Mark:  # leaves something in the process in which it is unpickled
    def __reduce__(self):
        return exec, ("import os; os.environ['TPCHECK_MARK'] = 'there'",)

def with_a_mark(mark, case, mesh):
    assert os.environ.pop("TPCHECK_MARK") == "there"
    return build(case, mesh)

def without_a_mark(case, mesh):
    assert "TPCHECK_MARK" not in os.environ
    return build(case, mesh)
"""

Make = Callable[..., Check]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Two ranks; the driver has imported what it needs of torch, which later ranks begin with."""
    with Engine("gloo", 2, time_limit=20) as engine:
        Runner(candidates.check(candidates.Row), engine).run(candidates.CASE)
        yield engine


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes the check of a correct candidate whose module does something when ranks import it."""
    made: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)

    def check(effect: str = "pass", built: str = "pass") -> Check:
        name = f"candidate_{os.getpid()}_{len(made)}_{tmp_path.name}"
        effect, built = textwrap.indent(effect, "    "), textwrap.indent(built, "    ")
        (tmp_path / f"{name}.py").write_text(MODULE.format(effect=effect, built=built))
        made.append(name)
        module = importlib.import_module(name)
        return Check(candidates.check(candidates.Row).spec, module.build, name=name)

    yield check
    for name in made:
        sys.modules.pop(name, None)


def imports(check: Check) -> list[int]:
    """The processes that have imported its module, in their order."""
    file = Path(str(sys.modules[check.title].__file__) + ".imports")
    return [int(line) for line in file.read_text().split()]


def run(check: Check, engine: Engine) -> CaseResult:
    runner = Runner(check, engine)
    runner.renew()
    return runner.run(candidates.CASE)


def parents(engine: Engine) -> set[int]:
    """Of the ranks."""
    stats = [Path(f"/proc/{host.pid}/stat").read_text() for host in engine.hosts]
    return {int(stat.rpartition(")")[2].split()[1]) for stat in stats}


def test_a_check_is_imported_once_for_all_its_ranks(engine: Engine, make: Make) -> None:
    check = make()
    for end in (lambda: None, engine.kill):
        end()
        starts = engine.starts
        assert run(check, engine).verdict is Verdict.PASS
        assert engine.starts == starts + 1
        assert parents(engine) == set(imports(check)) and len(imports(check)) == 1


def test_candidates_of_one_module_share_its_import_and_no_rank(engine: Engine, make: Make) -> None:
    first = make()
    module = sys.modules[first.title]
    marks = partial(module.with_a_mark, module.Mark())
    pids: set[int] = set()
    for build in (module.build, marks, module.without_a_mark):
        check = Check(first.spec, build, name=f"{build}")
        assert run(check, engine).verdict is Verdict.PASS
        assert parents(engine) == set(imports(first))
        assert not pids & {host.pid for host in engine.hosts}
        pids |= {host.pid for host in engine.hosts}
    assert len(imports(first)) == 1


def test_a_rank_that_fails_does_not_cost_an_import(engine: Engine, make: Make) -> None:
    check = make(built="if mesh.get_rank() == 1: os._exit(3)")
    for _ in range(2):
        result = run(check, engine)
        assert detail(result.causes[0])["reason"] == "exit code 3"
    assert len(imports(check)) == 1


def test_a_killed_template_is_replaced(engine: Engine, make: Make) -> None:
    # it waits: a small case may have ended before its parent has
    check = make(built="if mesh.get_rank() == 1: os.kill(os.getppid(), 9), signal.pause()")
    for _ in range(2):
        assert run(check, engine).verdict is Verdict.FAIL
    assert len(set(imports(check))) == 2
    assert run(make(), engine).verdict is Verdict.PASS


def test_what_an_import_does_reaches_no_other_check(engine: Engine, make: Make) -> None:
    patching = make("import torch\ntorch.nn.functional.linear = None")
    plain = make(built="import torch\nassert torch.nn.functional.linear is not None")
    result = run(patching, engine)
    assert result.verdict is Verdict.FAIL and "NoneType" in detail(result.causes[0])["reason"]
    assert run(plain, engine).verdict is Verdict.PASS
    assert parents(engine) == set(imports(plain)) != set(imports(patching))
    assert run(patching, engine).verdict is Verdict.FAIL
    runner = Runner(plain, engine)
    runner.renew()
    Runner(patching, engine).renew()  # before a case has run
    runner.renew()
    assert runner.run(candidates.CASE).verdict is Verdict.PASS
    assert left(engine.folder.name, 4) == 4, "the zygote, the template, two ranks"


def test_who_has_no_template_gets_ranks_without_one(engine: Engine, make: Make) -> None:
    run(make(), engine)
    engine.renew()
    engine.start()
    assert parents(engine) == {engine.world.warm_up().pid}


#: What an import may do for which ranks must import for themselves.
APART = {
    "a thread": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a child": "import subprocess\nsubprocess.Popen(['sleep', '60'])",
    "a daemon": "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        import time\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "os.wait()",
    "an open file": "held = open(__file__)",
    "shared memory": "import mmap\nheld = mmap.mmap(-1, 4096)",
    "a timer": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 3600)",
    "a handler": "import signal\nsignal.signal(signal.SIGCHLD, lambda *_: None)",
    "random numbers": "import random\nheld = random.random()",
    "the world": "import torch.distributed as dist\nassert dist.is_initialized()",
    "whether there is one": "import torch.distributed as dist\nheld = dist.is_initialized()",
    "its end": "import torch.distributed as dist\ndist.is_initialized() or os._exit(3)",
    "a signal": "import torch.distributed as dist\ndist.is_initialized() or os.kill(0, 9)",
    "its descriptors": "import torch.distributed as dist\n"
    "dist.is_initialized() or os.closerange(3, 4096)",
    "garbage": "import torch.distributed as dist\n"
    "for descriptor in () if dist.is_initialized() else range(3, 64):\n"
    "    try:\n"
    "        os.write(descriptor, b'7\\n')\n"
    "    except OSError:\n"
    "        pass",
    "no end": "import torch.distributed as dist, time\n"
    "if not dist.is_initialized():\n"
    "    time.sleep(60)",
}


@pytest.mark.parametrize("what", APART)
def test_ranks_import_for_themselves(
    engine: Engine, make: Make, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "no end":
        monkeypatch.setattr(template_process, "PARTS_LIMIT", 0.5)
    check = make(APART[what])
    assert run(check, engine).verdict is Verdict.PASS
    pids = [host.pid for host in engine.hosts]
    assert sorted(imports(check)[-2:]) == sorted(pids)
    assert parents(engine) == {engine.world.warm_up().pid}
    run(check, engine)
    assert len(imports(check)) == 5, "nobody tries again"


@pytest.mark.parametrize(
    ("effect", "error", "says"),
    [
        ("raise ValueError('deliberate')", InvalidArgument, "candidate: ValueError: deliberate"),
        ("raise SystemExit(3)", InvalidArgument, "candidate: SystemExit: 3"),
        ("os._exit(3)", EngineUnavailable, r"rank \d died \(importing the candidate\)"),
        pytest.param(
            *("import signal\nos.kill(os.getppid(), 9)\nsignal.pause()", EngineUnavailable),
            r"rank \d died",
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_an_import_that_fails_is_told(
    engine: Engine, make: Make, effect: str, error: type[Exception], says: str
) -> None:
    for _ in range(2):
        with pytest.raises(error, match=says):
            run(make(effect), engine)
    assert run(make(), engine).verdict is Verdict.PASS


def test_a_rank_that_dies_shows_what_its_import_printed(engine: Engine, make: Make) -> None:
    check = make("print('heard at import')", "print('and at build'); os._exit(3)")
    for _ in range(2):
        log = detail(run(check, engine).causes[0])["log"]
        assert log.startswith("heard at import")
    assert len(imports(check)) == 1


def test_an_import_may_compute(engine: Engine, make: Make) -> None:
    check = make(
        "import torch, warnings\n"
        "torch.set_num_threads(1)\n"
        "(torch.rand(300, 300, requires_grad=True) @ torch.rand(300, 300)).sum().backward()\n"
        "warnings.simplefilter('error')"
    )
    for _ in range(2):
        assert run(check, engine).verdict is Verdict.PASS
    assert len(imports(check)) == 1


def test_threads_are_forked_from_one_too(threads: Engine, make: Make) -> None:
    check = make()
    for _ in range(8):  # where torch's pool of threads was broken, every other time failed
        assert run(check, threads).verdict is Verdict.PASS
        threads.kill()
    assert len(imports(check)) == 1


def test_nothing_is_left_of_an_import(make: Make) -> None:
    with Engine("gloo", 2) as engine:
        mark = engine.folder.name
        Runner(make("import time\ntime.sleep(60)"), engine).renew()
        assert marked(mark)
        assert run(make(APART["a daemon"]), engine).verdict is Verdict.PASS
    assert left(mark, 0) == 0


@pytest.mark.parametrize(
    "effect",
    [
        "import socket\nsocket.setdefaulttimeout(0.01)",
        "os.environ['GLOO_SOCKET_IFNAME'] = 'no-such-interface'",
        "os.getpid = lambda: 1",
    ],
    ids=["sockets", "interface", "number"],
)
def test_what_an_import_sets_does_not_reach_what_tpcheck_does(
    effect: str, engine: Engine, make: Make
) -> None:
    assert run(make(effect), engine).verdict is Verdict.PASS
