"""Tensor parallelism composed with the other parallelisms, against the single-device reference."""

from fixtures.compositions import clipping, context, fsdp, moe, pipeline, replicated, wrapped
from fixtures.frameworks.torch_findings import singleton
from tpcheck import Check

_SMALLEST = {"layers": 1, "hidden": 2, "kv_heads": 1, "heads": 1, "head_dim": 1}
_SMALLEST |= {"intermediate": 1, "bias": False}
_STAGES = {**_SMALLEST, "layers": 2, "schedule": "gpipe"}
_known = [singleton(_SMALLEST, dp=2)]

tp_fsdp2 = Check(fsdp.spec, candidate=fsdp.candidate, known=_known)
tp_fsdp2_mixed_precision = Check(
    fsdp.mixed_spec, candidate=fsdp.mixed_candidate, communication=True, known=_known
)
tp_ddp = Check(replicated.spec, candidate=replicated.candidate)
tp_checkpointing = Check(
    wrapped.checkpointing, candidate=wrapped.checkpointed, known=[singleton(_SMALLEST)]
)
tp_expert_parallel = Check(moe.spec, candidate=moe.candidate)
tp_fsdp2_norm = Check(
    clipping.fsdp_spec, candidate=fsdp.candidate, clip=clipping.OfMeshes(), known=_known
)
tp_expert_parallel_norm = Check(
    clipping.experts_spec, candidate=moe.candidate, clip=clipping.OfExperts(2.0)
)
tp_context_parallel = Check(context.spec, candidate=context.candidate)
tp_pipeline = Check(
    pipeline.spec,
    candidate=pipeline.candidate,
    schedule=pipeline.run,
    processes=True,
    known=[singleton(_STAGES, pp=2)],
)
tp_pipeline_tied = Check(
    pipeline.tied_spec,
    candidate=pipeline.tied_candidate,
    schedule=pipeline.run,
    processes=True,
    known=[singleton({**_STAGES, "vocab": 2}, pp=2)],
)
