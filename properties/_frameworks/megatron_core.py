"""Megatron-core's layers and a small GPT: sequence parallelism off and on (`_sp`)."""

from functools import partial

from fixtures.frameworks import megatron as mcore
from fixtures.frameworks import megatron_findings as findings
from tpcheck import Check
from tpcheck.adapters.megatron import candidate

megatron_column = Check(mcore.column_spec(False), candidate(mcore.column), processes=True)
megatron_column_sp = Check(
    mcore.column_spec(True), candidate(partial(mcore.column, sp=True)), processes=True
)
megatron_row = Check(mcore.row_spec(False), candidate(mcore.row), processes=True)
megatron_row_sp = Check(
    mcore.row_spec(True), candidate(partial(mcore.row, sp=True)), processes=True
)
megatron_embedding = Check(mcore.embedding_spec(False), candidate(mcore.embedding), processes=True)
megatron_embedding_sp = Check(
    mcore.embedding_spec(True), candidate(partial(mcore.embedding, sp=True)), processes=True
)
megatron_reduce = Check(
    mcore.reduced_spec(), candidate(mcore.reduced), processes=True, known=[findings.lost_all_reduce]
)
megatron_cross_entropy = Check(
    mcore.cross_entropy_spec(0.0),
    candidate(mcore.cross_entropy),
    processes=True,
    known=[findings.logits_in_place, findings.logits_overwritten],
)
megatron_cross_entropy_smoothed = Check(
    mcore.cross_entropy_spec(mcore.SMOOTHING),
    candidate(mcore.cross_entropy),
    processes=True,
    overrides={"overwrites": ("logits",)},  # as without smoothing
    known=[findings.smoothed_in_place, *findings.smoothing_by_partition],
)
megatron_attention = Check(mcore.attention_spec(False), candidate(mcore.attention), processes=True)
megatron_attention_sp = Check(
    mcore.attention_spec(True), candidate(partial(mcore.attention, sp=True)), processes=True
)
megatron_mlp = Check(mcore.mlp_spec(False), candidate(mcore.mlp), processes=True)
megatron_mlp_sp = Check(
    mcore.mlp_spec(True), candidate(partial(mcore.mlp, sp=True)), processes=True
)
megatron_gpt = Check(mcore.gpt_spec(False), candidate(mcore.gpt), processes=True)
megatron_gpt_sp = Check(
    mcore.gpt_spec(True), candidate(partial(mcore.gpt, sp=True)), processes=True
)
