"""Megatron-core's norm of all gradients, of its own modules: order 2, 3 and infinity."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from fixtures.frameworks import megatron_findings as findings
from fixtures.frameworks import megatron_modules as modules
from fixtures.frameworks.megatron_norm import clip, in_float32
from tpcheck import Check, Spec
from tpcheck.adapters.megatron import candidate


def _clipped(spec: Spec, build: Any, order: float = 2.0, **more: Any) -> Check:
    clipping = partial(clip, order=order)
    return Check(in_float32(spec, order), candidate(build), clip=clipping, processes=True, **more)


megatron_mlp_norm = _clipped(modules.mlp_spec(False), modules.mlp)
megatron_mlp_sp_norm = _clipped(modules.mlp_spec(True), partial(modules.mlp, sp=True))
megatron_mlp_norm_of_order_3 = _clipped(modules.mlp_spec(False), modules.mlp, 3.0)
megatron_mlp_largest = _clipped(modules.mlp_spec(False), modules.mlp, math.inf)
megatron_attention_norm = _clipped(modules.attention_spec(False), modules.attention)
megatron_gpt_sp_norm = _clipped(modules.gpt_spec(True), partial(modules.gpt, sp=True))

#: Listed: among drawn ones are some in which the sinks have next to no part in the norm.
_sinks = replace(
    modules.attention_spec(False, sink=True),
    cases=[findings.sink(2), findings.sink(4)],
)
megatron_sink_norm = _clipped(_sinks, modules.attention, known=[findings.sink_on_one_rank])
