"""Models sharded by plans: xorl's string plans on a Qwen3 shape, KempnerForge's DTensor plan with
sequence parallelism. Each plan is audited on the unsharded model, held against what ranks hold,
and compared with the single-device reference in values and gradients."""

from typing import Any

from fixtures.frameworks.torch_findings import singleton
from fixtures.plans import qwen, qwen_weights, subjects, transformer
from tpcheck import Case, Check, Layout, Plan, Shard

_SMALLEST = {"vocab": 1, "layers": 1, "kv_heads": 1, "heads": 1, "head_dim": 2}
_SMALLEST |= {"hidden": 2, "intermediate": 1}
_singleton = singleton(_SMALLEST)


# ---- xorl: string styles, unfused projections, weights loaded after parallelizing


def _qwen(top: dict[str, str], layout: Any = None) -> Check:
    def build(case: Case, mesh: Any) -> Any:
        import torch

        with torch.device("meta"):
            model = subjects.qwen_model(case, merge_qkv=True)
        qwen.parallelize(model, mesh["tp"], qwen.full_plan(top))
        qwen_weights.materialize(model, mesh.device_type)
        qwen.sum_head_norm_gradients(model, mesh["tp"].get_group())
        return model

    return Check(
        subjects.qwen_spec(layout=layout),
        candidate=build,
        load=_load_fused,
        plan=Plan(qwen.full_plan(top), whole=qwen.PLAN.whole, reduced=qwen.PLAN.reduced),
        known=[singleton(_SMALLEST | {"bias": False})],
    )


def _load_fused(model: Any, state: Any) -> None:
    qwen_weights.load(model, qwen_weights.checkpoint(state))


def _sharded_logits(case: Case) -> Layout:
    return Layout(outputs={"output": Shard(-1)})


qwen_plan = _qwen(qwen.TOP_PLAN, _sharded_logits)
qwen_plan_gathered = _qwen(qwen.TOP_PLAN_GATHERED)


# ---- KempnerForge: DTensor styles with sequence parallelism, and what switches it off


def _transformer(**switches: Any) -> Check:
    def build(case: Case, mesh: Any) -> Any:
        return transformer.parallelize(subjects.transformer_model(case, **switches), mesh["tp"])

    return Check(
        subjects.transformer_spec(**switches),
        candidate=build,
        plan=lambda case: transformer.declared(subjects.transformer_model(case, **switches)),
        known=[_singleton],
    )


transformer_sp_plan = _transformer()
transformer_sp_gelu_plan = _transformer(activation="gelu")
transformer_tied_plan = _transformer(tie_embeddings=True)
transformer_moe_plan = _transformer(experts=3)
pipeline_stage_plan = Check(
    subjects.stage_spec(),
    candidate=lambda case, mesh: transformer.parallelize(subjects.stage_model(case), mesh["tp"]),
    plan=lambda case: transformer.declared(subjects.stage_model(case)),
    known=[_singleton],
)


# ---- sequence parallelism between plain tensors: no hooks, every module cuts and joins itself


def _build_local(case: Case, mesh: Any) -> Any:
    from torch.distributed.tensor.parallel import parallelize_module

    model = subjects.transformer_model(case)
    return parallelize_module(model, mesh["tp"], transformer.local_plan(model))


transformer_local_sp_plan = Check(
    subjects.transformer_spec(),
    candidate=_build_local,
    plan=lambda case: Plan(
        transformer.local_plan(subjects.transformer_model(case)), whole=("token_embedding.weight",)
    ),
    known=[_singleton],
)
