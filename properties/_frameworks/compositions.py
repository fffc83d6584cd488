"""Tensor parallelism composed with the other parallelisms, against the single-device reference."""

from fixtures.compositions import context, fsdp, moe, wrapped
from tpcheck import Check

tp_fsdp2 = Check(fsdp.spec, candidate=fsdp.candidate)
tp_fsdp2_mixed_precision = Check(fsdp.mixed_spec, candidate=fsdp.mixed_candidate)
tp_checkpointing = Check(wrapped.checkpointing, candidate=wrapped.checkpointed)
tp_expert_parallel = Check(moe.spec, candidate=moe.candidate)
tp_context_parallel = Check(context.spec, candidate=context.candidate)
