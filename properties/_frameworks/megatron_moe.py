"""Megatron-core's experts, each sharded over TP."""

from fixtures.frameworks.megatron_moe import moe, moe_spec
from tpcheck import Check
from tpcheck.adapters.megatron import candidate

megatron_moe = Check(moe_spec(), candidate(moe), processes=True)
