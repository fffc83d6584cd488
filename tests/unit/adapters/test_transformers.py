"""transformers models: which there are, and which can't be checked."""

from __future__ import annotations

import importlib.util

import pytest

from tpcheck.adapters import tiny, transformers
from tpcheck.errors import InvalidArgument

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)


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
