"""How much of a checkpoint's files a loader reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from fixtures.parallel.checkpoint import Checkpoint
from tests import candidates
from tpcheck import Case
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import Misheld
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Fault

FILES = Checkpoint()
#: 32 columns of the weight, so that a rank has 16 of them, and numbers enough to count.
CASE = replace(candidates.CASE, dims={**candidates.CASE.dims, "in_features": 32})
DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2}


def run(engine: Engine, case: Case, **functions: Any) -> tuple[Runner, CaseResult]:
    check = candidates.check(candidates.Row)
    runner = Runner(replace(check, **{"save": FILES.save, **functions}), engine)
    return runner, runner.run(case)


@torch.no_grad()
def what_it_needs(module: Any, folder: Path) -> None:
    """The rank's columns alone, from the files of as many ranks as have saved."""
    files = sorted(folder.iterdir())
    width = module.weight.shape[1]
    first, columns = module.rank * width, 0
    for file in files:
        with safe_open(file, framework="pt") as opened:
            part = opened.get_slice("weight")
            size = part.get_shape()[1]
            low, high = max(first - columns, 0), min(first + width - columns, size)
            if low < high:
                at = columns + low - first
                module.weight[:, at : at + high - low] = part[:, low:high]
            columns += size
            if module.bias is not None and file == files[0]:
                module.bias.copy_(opened.get_tensor("bias"))


def whole_files(module: Any, folder: Path) -> None:
    """All tensors of all files are copied, and then cut."""
    tensors = [{n: t.clone() for n, t in load_file(f).items()} for f in sorted(folder.iterdir())]
    _cut(module, tensors)


@torch.no_grad()
def _cut(module: Any, tensors: list[dict[str, torch.Tensor]]) -> None:
    width = module.weight.shape[1]
    whole = torch.cat([of_rank["weight"] for of_rank in tensors], 1)
    module.weight.copy_(whole[:, module.rank * width :][:, :width])
    if module.bias is not None:
        module.bias.copy_(tensors[0]["bias"])


def due(case: Case) -> int:
    """The bytes of a rank's part of the row-parallel weight, and of its bias."""
    out, columns = case["out_features"], case["in_features"] // case.tp
    return DTYPES[case.dtype] * (out * columns + (out if case["bias"] else 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("saved_at", [0, 1, 4])
def test_what_is_needed_is_all_that_is_read(gloo: Engine, dtype: str, saved_at: int) -> None:
    case = replace(CASE, dtype=dtype, saved_at=saved_at)
    _, result = run(gloo, case, load=what_it_needs, reads=1)
    assert result.verdict is Verdict.PASS, result.mismatches
    assert result.bytes["checkpoint"] == (due(case), due(case))


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_files_are_more(gloo: Engine, dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    runner, result = run(gloo, case, load=whole_files, reads=1.5)
    read = 2 * due(case)
    assert {m.detail for m in result.mismatches} == {
        Misheld(Fault.READ, storage=read, expected=due(case))
    }
    named = examine_failure(runner, result).diagnosis
    assert named.code == "parameter-not-sharded"
    assert f"reads {read:,} bytes" in named.message


def test_it_is_counted_and_not_judged_where_it_was_not_asked_for(gloo: Engine) -> None:
    _, result = run(gloo, CASE, load=whole_files)
    assert result.verdict is Verdict.PASS
    assert result.bytes["checkpoint"] == (2 * due(CASE), due(CASE))


def test_parts_that_are_read_twice_count_once(gloo: Engine) -> None:
    def twice(module: Any, folder: Path) -> None:
        what_it_needs(module, folder)
        what_it_needs(module, folder)

    _, result = run(gloo, CASE, load=twice, reads=1)
    assert result.verdict is Verdict.PASS, result.mismatches


# ---- through Python's files


def pickled(module: Any, folder: Path) -> None:
    torch.save(dict(module.named_parameters()), folder / f"{module.rank}.pt")


def all_pickled(module: Any, folder: Path) -> None:
    _cut(module, [torch.load(file) for file in sorted(folder.iterdir())])


def by_torch(module: nn.Module, folder: Path) -> None:
    dcp.save(_state(module), checkpoint_id=folder)


def of_torch(module: nn.Module, folder: Path) -> None:
    state = _state(module)
    dcp.load(state, checkpoint_id=folder)
    module.load_state_dict({name.partition("/")[2]: t for name, t in state.items()})


def _state(module: nn.Module) -> dict[str, Any]:
    """Each rank's own tensors, under names of its own."""
    return {f"{dist.get_rank()}/{name}": p.detach() for name, p in module.named_parameters()}


@pytest.mark.parametrize(("save", "load"), [(pickled, all_pickled), (by_torch, of_torch)])
def test_what_python_reads_counts(
    gloo: Engine, save: Callable[..., Any], load: Callable[..., Any]
) -> None:
    _, result = run(gloo, CASE, save=save, load=load)
    assert result.verdict is Verdict.PASS, result.mismatches
    read, part = result.bytes["checkpoint"]
    assert part == due(CASE)
    assert read > part


def test_it_needs_a_checkpoint() -> None:
    with pytest.raises(InvalidArgument, match="without save= there is no checkpoint"):
        replace(candidates.check(candidates.Row), reads=1.0)


def test_threads_leave_it_to_processes() -> None:
    assert replace(
        candidates.check(candidates.Row), save=FILES.save, load=FILES.load, reads=2
    ).processes
