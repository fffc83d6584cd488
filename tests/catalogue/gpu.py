"""`python -m tests.catalogue.gpu` (`make verify-gpu`): all there is to do once a GPU is at hand.

It runs tpcheck's own checks there, each step a command of its own that may fail, hang or be refused
without the others, and writes one report, as JSON and as text.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests import ROOT
from tpcheck.errors import TROUBLE, UNDECIDED
from tpcheck.protocol import sanitized
from tpcheck.protocol.ends import SHARED_GPUS

#: Seconds that a step may take. Compiling each Triton kernel for each of its sizes takes minutes.
LIMIT = 1800.0
#: Characters of a step's output that are kept: the page of a failure and the summary after it.
KEPT = 20_000
#: Cases of correct candidates under the bounds: an alarm in a thousand is seen with 98 %.
CASES = 4000

LAYERS = ("properties/linear.py", "properties/mlp.py", "properties/attention.py")
MODELS = (
    *("properties/block.py", "properties/embedding.py", "properties/head.py"),
    *("properties/cross_entropy.py", "properties/training.py", "properties/dropout.py"),
    *("properties/language_model.py", "properties/llama.py"),
)
MUTANTS = ("numbers", "memory", "discipline", "gemm")
ONE = ("--engine", "nccl", "--tp", "1", "--ranks", "1")
TWO = ("--engine", "nccl", "--tp", "2", "--ranks", "2")
SHARING = {SHARED_GPUS: "1"}


@dataclass(frozen=True)
class Step:
    """One thing to do on a GPU.

    Args:
        name, claim: what it is called, and what a PASS of it says.
        command: of tpcheck; `{out}` in it is the folder of the report.
        gpus: how many it needs.
        environment: what it sets beside what is set.
    """

    name: str
    claim: str
    command: tuple[str, ...] = ()
    gpus: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


STEPS = (
    Step(
        "nccl-one-rank",
        "the nccl engine starts, and layers on one rank agree with the reference on the CPU",
        ("verify", *LAYERS, *ONE, "--json", "{out}/nccl-one-rank.json"),
    ),
    Step(
        "kernels",
        "Triton kernels compiled for the device agree with their formulas",
        ("verify", "properties/_kernels/ours.py", *ONE, "--json", "{out}/kernels.json"),
    ),
    Step(
        "kernel-mutants",
        "wrong kernels are found there: one rank has no canary",
        (
            *("mutants", *(f"fixtures/mutants/kernels_{of}.py" for of in MUTANTS)),
            *("--engine", "nccl", "--ranks", "2", "--time-limit", "60"),
            *("--json", "{out}/kernel-mutants.json"),
        ),
        environment=SHARING,
    ),
    Step(
        "kernel-mutants-sanitized",
        "accesses beyond a tensor that change no result are found by NVIDIA's compute-sanitizer",
        (
            *("mutants", "fixtures/mutants/kernels_memory.py", "--engine", "nccl", "--ranks", "1"),
            *("--time-limit", "100", "--json", "{out}/kernel-mutants-sanitized.json"),
        ),
        environment={sanitized.ASKED: "memcheck"},
    ),
    Step(
        "bounds",
        f"no alarm in {CASES} cases of correct layers, by the device's own matmuls and reductions",
        (
            *("calibrate", "alarms", *LAYERS, *ONE, "--cases", str(CASES)),
            *("--state", "{out}/bounds.jsonl", "--json", "{out}/bounds.json"),
        ),
    ),
    Step(
        "bounds-of-kernels",
        f"no alarm in {CASES} cases of right formulas in torch's own operators on the device",
        (
            *("calibrate", "alarms", "properties/_kernels/formulas.py", *ONE),
            *("--cases", str(CASES)),
            *("--state", "{out}/bounds-of-kernels.jsonl", "--json", "{out}/bounds-of-kernels.json"),
        ),
    ),
    Step(
        "nccl-two-gpus",
        "NCCL's ranks agree with the reference, one GPU each, and the canary is found",
        ("verify", *LAYERS, *TWO, "--json", "{out}/nccl-two-gpus.json"),
        gpus=2,
    ),
    Step(
        "nccl-shared",
        "several NCCL ranks share one GPU, each with an NCCL_HOSTID of its own",
        ("verify", *LAYERS, *MODELS, *TWO, "--json", "{out}/nccl-shared.json"),
        environment=SHARING | {"CUDA_VISIBLE_DEVICES": "0"},
    ),
    Step(
        "gloo-on-cuda",
        "gloo's ranks with tensors on a GPU, which they share",
        (
            *("verify", *LAYERS, "--engine", "gloo-cuda", "--tp", "2,4", "--ranks", "4"),
            *("--json", "{out}/gloo-on-cuda.json"),
        ),
    ),
)

#: What is said of an exit code.
ENDS = {0: "PASS", 1: "FAIL", TROUBLE: "REFUSED", UNDECIDED: "UNKNOWN"}


@dataclass(frozen=True)
class Done:
    """What a step came to.

    Args:
        ended: PASS, FAIL, UNKNOWN (a hang and a death, too), REFUSED, or NOT RUN.
        why: where it did not run, or did not end by itself.
        figures: what it wrote as JSON.
    """

    name: str
    claim: str
    ended: str
    why: str = ""
    command: tuple[str, ...] = ()
    seconds: float = 0.0
    output: str = ""
    figures: Any = None


Ran = tuple[int | None, str]  # exit code, None after the limit; what was printed
Run = Callable[[Sequence[str], Mapping[str, str], float], Ran]


def run(command: Sequence[str], environment: Mapping[str, str], limit: float) -> Ran:
    """A command in a session of its own, which is killed after the limit."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the ranks end with their driver
        output, _ = process.communicate()
        return None, output
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def do(step: Step, gpus: int, out: Path, run: Run = run) -> Done:
    """Does a step, where it can be done."""
    about: dict[str, Any] = {"name": step.name, "claim": step.claim}
    if gpus < step.gpus:
        why = f"it needs {step.gpus} GPUs, and torch sees {gpus}"
        return Done(ended="NOT RUN", why=why, **about)
    words = [word.replace("{out}", str(out)) for word in step.command]
    written = Path(words[words.index("--json") + 1])
    written.unlink(missing_ok=True)  # of an earlier run
    began = time.monotonic()
    code, output = run([sys.executable, "-m", "tpcheck", *words], step.environment, LIMIT)
    about |= {"command": ("tpcheck", *words), "seconds": round(time.monotonic() - began, 1)}
    about |= {"output": output[-KEPT:], "figures": _read(written)}
    if code is None:
        return Done(ended="UNKNOWN", why=f"it took longer than {LIMIT:g} s", **about)
    why = "" if code in ENDS else f"it ended with {code}"
    return Done(ended=ENDS.get(code, "UNKNOWN"), why=why, **about)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def exit_code(done: Sequence[Done]) -> int:
    """1 where a step FAILs, else 3 where one is UNKNOWN, else 2 where one is refused, else 0. What
    did not run decides nothing; where nothing else is there, 3."""
    ends = {one.ended for one in done} - {"NOT RUN"}
    worst = ("FAIL", 1), ("UNKNOWN", UNDECIDED), ("REFUSED", TROUBLE), ("PASS", 0)
    return next((code for end, code in worst if end in ends), UNDECIDED)


def text(about: Mapping[str, Any], done: Sequence[Done]) -> str:
    """The report as it is read."""
    lines = [f"{name:10} {value}" for name, value in about.items()]
    for one in done:
        lines += ["", f"{one.ended:8} {one.name}: {one.claim}"]
        lines += [f"         {one.why}"] if one.why else []
        lines += [f"         {' '.join(one.command)}: {one.seconds:g} s"] if one.command else []
        if one.ended not in ("PASS", "NOT RUN"):
            lines += [f"         | {line}" for line in one.output.splitlines()[-40:]]
    return "\n".join(lines) + "\n"


def why_not() -> str | None:
    """What is missing here, in a line; None where there is a GPU."""
    from tpcheck import engines

    reason = engines.why_not("nccl", 1)
    if reason is None:
        return None
    return (
        "it needs an NVIDIA GPU, and a torch with CUDA and NCCL: "
        f"{reason.removesuffix('; use --engine gloo')}"
    )


def machine() -> dict[str, Any]:
    """The GPUs, and what drives them."""
    import torch

    from tpcheck.bench.where import where

    count = torch.cuda.device_count()
    return where() | {
        "gpus": [torch.cuda.get_device_name(i) for i in range(count)],
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
    }


def campaign(about: Mapping[str, Any], out: Path, steps: Sequence[Step], run: Run = run) -> int:
    """Does the steps, tells of each, and writes the report after each, since a machine with a GPU
    may be taken away; what to end with."""
    out.mkdir(parents=True, exist_ok=True)
    done: list[Done] = []
    for step in steps:
        done.append(do(step, len(about["gpus"]), out, run))
        print(f"{done[-1].ended:8} {step.name}: {done[-1].why or step.claim}", flush=True)
        data = {"about": dict(about), "steps": [asdict(one) for one in done]}
        (out / "report.json").write_text(json.dumps(data, indent=2))
        (out / "report.txt").write_text(text(about, done))
    print(f"report: {out / 'report.txt'}, {out / 'report.json'}")
    return exit_code(done)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="verify-gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".tpcheck" / "gpu")
    names = [step.name for step in STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(names)}")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.steps) - set(names)):
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(names)}")
    if (reason := why_not()) is not None:
        print(f"verify-gpu: {reason}", file=sys.stderr)
        return TROUBLE
    chosen = [step for step in STEPS if not given.steps or step.name in given.steps]
    return campaign(machine(), given.out.absolute(), chosen)


if __name__ == "__main__":
    sys.exit(main())
