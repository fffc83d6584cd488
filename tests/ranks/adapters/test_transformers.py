"""transformers models under their own plans: right ones pass, one with a hole does not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tpcheck import Case, Check
from tpcheck.adapters import tiny, transformers
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.placement import Blocks, Shard
from tpcheck.runner.runner import Runner
from tpcheck.search.search import Options, Search
from tpcheck.verdict import Verdict

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

OPTIONS = Options(examples=4, dtypes=("float64", "float32"), corpus=None, shrink_seconds=0.0)
CASE = Case(dims={"batch": 1, "seq": 2, "vocab": tiny.VOCAB}, mesh={"tp": 2})


@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma2"])
def test_an_architecture_passes_under_its_plan(gloo: Engine, name: str) -> None:
    """llama, experts with packed weights, tied embeddings."""
    result = Search(transformers.architecture(name), gloo, OPTIONS).run()
    assert result.verdict is Verdict.PASS, result.to_dict()
    assert result.tp_degrees == [2, 4]


def test_a_configuration_of_one_s_own_is_checked_in_a_line(gloo: Engine) -> None:
    config = tiny.model_of("llama")[1]
    result = Search(transformers.check(config), gloo, OPTIONS).run()
    assert result.verdict is Verdict.PASS, result.to_dict()


def _without(rule: str) -> Any:
    def build(case: Case) -> Any:
        model = tiny.build("llama")
        plan = {k: v for k, v in model.tp_plan.items() if rule not in k}
        assert len(plan) < len(model.tp_plan)
        model._tp_plan = plan
        return model

    return build


@pytest.mark.parametrize("rule", ["o_proj", "down_proj"])
def test_a_plan_with_a_hole_fails(gloo: Engine, rule: str) -> None:
    right = transformers.architecture("llama")
    broken = Check(right.spec, transformers.candidate(_without(rule)))
    assert Runner(right, gloo).run(CASE).verdict is Verdict.PASS
    assert Runner(broken, gloo).run(CASE).verdict is Verdict.FAIL


def test_gradients_that_are_summed_in_each_microbatch_are_seen(gloo: Engine) -> None:
    """docs/findings/transformers-gradient-accumulation.md"""
    from dataclasses import replace

    runner = Runner(transformers.architecture("qwen3"), gloo)
    assert runner.run(CASE).verdict is Verdict.PASS
    twice = runner.run(replace(CASE, microbatches=2))
    assert {m.tensor.split(".")[-2] for m in twice.mismatches} == {"q_norm", "k_norm"}


def test_heads_that_the_degree_does_not_divide_are_refused() -> None:
    config = tiny.model_of("llama")[1]
    assert transformers.refusal(config, 4) is None
    assert transformers.refusal(config, 3) == "num_attention_heads=4 is not divisible by tp=3"


def test_every_architecture_with_a_plan_is_listed() -> None:
    names = tiny.architectures()
    assert len(names) > 100 and {"llama", "mixtral", "qwen3"} <= set(names)
    assert "bert" not in names
    assert tiny.styles("mixtral") >= {"colwise", "packed_colwise", "moe_tp_experts"}


def test_what_cannot_be_built_tiny_says_why() -> None:
    check = transformers.architecture("llama4_vision_model")
    reason = check.spec.cannot_run()
    assert reason is not None and reason.startswith("can't be built tiny: ")
    with pytest.raises(InvalidArgument, match="can't be built tiny"):
        tiny.build("llama4_vision_model")


def test_a_packed_placement_is_read_as_blocks() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tpcheck.tensors.live import live_entry

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        full = torch.arange(8.0).reshape(8, 1)  # [gate 0..3 | up 4..7]
        packed = distribute_tensor(
            full, mesh, [_StridedShard(0, split_factor=2)], src_data_rank=None
        )
        entry = live_entry(packed)
        assert entry == {"tp": Blocks(0, ((4, Shard(0)), (4, Shard(0))))}
        assert packed.to_local().flatten().tolist() == [2.0, 3.0, 6.0, 7.0]
        assert entry["tp"].indices(8, 2, 1) == [2, 3, 6, 7]  # type: ignore[index,union-attr]
    finally:
        dist.destroy_process_group()
