"""Tensor parallelism composed with the other parallelisms, against the single-device reference."""

from fixtures.compositions import fsdp, wrapped
from tpcheck import Check

tp_fsdp2 = Check(fsdp.spec, candidate=fsdp.candidate)
tp_fsdp2_mixed_precision = Check(fsdp.mixed_spec, candidate=fsdp.mixed_candidate)
tp_checkpointing = Check(wrapped.checkpointing, candidate=wrapped.checkpointed)
