"""`tpcheck audit` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import ROOT
from tpcheck.cli.main import main

QWEN = f"{ROOT}/fixtures/plans/qwen.py"

OWN = """
from collections import namedtuple
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}
WRONG = {"upp": ColwiseParallel(), "down": RowwiseParallel()}
NOT_A_PLAN = 3


def build(size=8):
    return nn.ModuleDict({"up": nn.Linear(4, size), "down": nn.Linear(size, 4)})


def build_parallel(mesh):
    return parallelize_module(build(), mesh, PLAN)


def build_wrong(mesh):
    return parallelize_module(build(), mesh, {"up": ColwiseParallel()})


def build_misspelt(mesh):
    return parallelize_module(build(), mesh, {"up": ColwiseParallel(), "dwn": RowwiseParallel()})


def build_perhaps(size=8, mesh=None):
    return build(size) if mesh is None else parallelize_module(build(size), mesh, PLAN)


def build_over(group):
    return build()


def build_sized(size: int):
    return build(size)


def plan_of(model):
    return PLAN if "up" in dict(model.named_children()) else WRONG


def fails():
    raise RuntimeError("no such\\nmodel")


def exits():
    raise SystemExit(3)


def skips():
    raise type("Skipped", (BaseException,), {})("not here")


def lazy():
    return nn.ModuleDict({"up": nn.LazyLinear(8), "down": nn.LazyLinear(8)})


def number():
    return 3
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["audit", *arguments])
    out = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out.out, out.err


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own_models.py").write_text(OWN)
    return str(tmp_path / "own_models.py")


def test_a_right_plan_on_a_model_of_32_billion_parameters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "audit.json"
    code, out, _ = run(
        capsys, f"{QWEN}:qwen3_32b", "--plan", f"{QWEN}:PLAN", "--tp", "8", "--json", str(file)
    )
    assert code == 0, out
    assert "PASS  no finding" in out and "64 of 64" in out
    said = json.loads(file.read_text())
    assert said["findings"] == [] and said["tp"] == 8
    assert said["bytes"]["whole"] == 4 * 32_762_123_264
    assert said["bytes"]["held"] == said["bytes"]["promised"] < said["bytes"]["whole"] / 7.9
    entry = next(e for e in said["entries"] if e["key"].endswith("down_proj"))
    assert (entry["matched"], entry["expected"], entry["sharded"]) == (64, 64, 64)


def test_a_wrong_root_exits_with_1_and_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, f"{QWEN}:qwen3_32b", "--plan", f"{QWEN}:BASE_PLAN", "--tp", "8")
    assert code == 1
    assert "'layers.*.mlp.up_proj' matches no module" in out
    assert "there is model.layers.*.mlp.up_proj" in out
    assert out.rstrip().endswith("findings: plan-entry-unmatched, parameter-not-sharded")


def test_plans_of_objects_functions_and_parallelized_models(
    capsys: pytest.CaptureFixture[str], own: str
) -> None:
    assert run(capsys, f"{own}:build", "--plan", f"{own}:PLAN")[0] == 0
    assert run(capsys, f"{own}:build", "--plan", f"{own}:plan_of", "--tp", "4")[0] == 0
    assert run(capsys, f"{own}:build", "--plan", f"{own}:WRONG")[0] == 1
    whole = ("--whole", "up.*", "--optional", "upp")
    assert run(capsys, f"{own}:build", "--plan", f"{own}:WRONG", *whole)[0] == 1  # down is unpaired
    code, out, _ = run(capsys, f"{own}:build_parallel", "--plan", f"{own}:PLAN")
    assert code == 0 and "a parallelized model" in out
    code, out, _ = run(capsys, f"{own}:build_wrong", "--plan", f"{own}:PLAN")
    assert code == 1 and "down.weight: whole, 'down' promises Shard(1)" in out
    code, out, _ = run(capsys, f"{own}:build_wrong")
    assert code == 1 and "down.weight: the factory leaves it whole; shard it there" in out
    assert "give --whole 'down.weight'" in out and "matches no module" not in out
    code, out, _ = run(capsys, f"{own}:build", "--plan", f"{own}:WRONG")
    assert "shard it, or declare it by --whole 'up.weight'" in out


def test_a_key_that_a_factorys_own_plan_skips_is_found(
    capsys: pytest.CaptureFixture[str], own: str
) -> None:
    code, out, _ = run(capsys, f"{own}:build_misspelt")
    assert code == 1 and "plan-entry-unmatched  'dwn' matches no module: parallelize_module" in out
    assert "there is down" in out and "down.weight: the factory leaves it whole" in out


def test_a_mesh_that_can_be_left_out_is_given_where_there_is_no_plan(
    capsys: pytest.CaptureFixture[str], own: str
) -> None:
    code, out, _ = run(capsys, f"{own}:build_perhaps", "--whole", "*.bias")
    assert code == 0 and "a parallelized model" in out
    code, out, _ = run(capsys, f"{own}:build_perhaps", "--plan", f"{own}:PLAN")
    assert code == 0 and "a plan, without ranks" in out


def test_a_configuration_of_transformers_stands_for_its_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("LlamaConfig", "LlamaForCausalLM"):
        given = ("--tp", "4", "--optional", "*", "--whole", "*norm.weight")
        code, out, _ = run(capsys, f"transformers:{name}", *given)
        assert code == 0 and "26.95 GB unsharded" in out, out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{own}:build_over"], "takes a process group, and an audit is of a plan"),
        (["{own}:build_sized"], "needs size, which is annotated as int, neither a mesh nor"),
        (["nothing"], "is not MODULE:NAME"),
        (["no_such_module_here:build"], "does not import"),
        (["no_such_file.py:build"], "no such file"),
        (["{own}:biuld"], "did you mean 'build'"),
        (["{own}:fails"], "raised RuntimeError: no such model"),
        (["{own}:exits"], "raised SystemExit: 3"),
        (["{own}:skips"], "raised Skipped: not here"),
        (["{own}:lazy", "--plan", "{own}:PLAN"], "up.weight has no shape before a first forward"),
        (["{own}:number"], "returned a int"),
        (["{own}:NOT_A_PLAN"], "is a int"),
        (["{own}:build"], "ships no tp_plan; give --plan"),
        (["{own}:build", "--plan", "{own}:NOT_A_PLAN"], "a plan is a mapping"),
        (["{own}:build", "--plan", "{own}:fails"], "raised TypeError"),
        (
            ["{own}:build", "--plan", "{own}:PLAN", "--tp", "0"],
            "0 is not a whole number of at least 1",
        ),
        (["{own}:build_parallel", "--tp", "-1"], "-1 is not a whole number of at least 1"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(
    capsys: pytest.CaptureFixture[str], own: str, arguments: list[str], words: str
) -> None:
    code, _, err = run(capsys, *(a.replace("{own}", own) for a in arguments))
    assert code == 2 and words in err
    assert len(err.strip().splitlines()) == 1
