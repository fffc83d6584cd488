"""transformers models: which there are, and which can't be checked."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from tpcheck import Case, Plan, audit
from tpcheck.adapters import pretrained, releases, tiny, transformers
from tpcheck.adapters.tiny_sizes import VOCAB
from tpcheck.errors import InvalidArgument
from tpcheck.vocabulary import Code

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


def test_an_architecture_that_is_misspelt_is_told_with_what_it_may_be() -> None:
    reason = transformers.architecture("lama").spec.cannot_run()
    assert reason is not None and "has no architecture 'lama' (did you mean 'llama'" in reason


@pytest.mark.parametrize("adapter", [transformers, pretrained])
def test_what_is_no_configuration_of_token_ids_is_refused_where_it_is_given(adapter: Any) -> None:
    from transformers import LlamaConfig, ViTConfig

    for given in ("llama", None, {"vocab_size": 3}, LlamaConfig):
        with pytest.raises(InvalidArgument, match="give a configuration, as LlamaConfig"):
            adapter.check(given)
    with pytest.raises(InvalidArgument, match=r"ViTConfig.*: it has no vocab_size"):
        adapter.check(ViTConfig())
    with pytest.raises(InvalidArgument, match=r"whole='up': give a tuple, as in .'up',."):
        adapter.check(tiny.model_of("llama")[1], whole="up")


def parameters(config: Any) -> int:
    return sum(parameter.numel() for parameter in tiny.on_meta(config).parameters())


def test_a_released_configuration_made_small_is_the_same_but_for_its_sizes() -> None:
    from transformers import MistralConfig, MixtralConfig

    released = MistralConfig(sliding_window=7, num_hidden_layers=48, tie_word_embeddings=True)
    assert parameters(released) > 7 * 10**9
    sizes = tiny.smaller(released)
    small = transformers.resized(released, sizes)
    assert parameters(small) < tiny.MOST_PARAMETERS
    assert (small.sliding_window, small.tie_word_embeddings) == (7, True)
    assert (small.num_attention_heads, small.num_key_value_heads) == (8, 4), "shared, as they were"
    assert {name: tiny.value(small, name) for name in sizes} == sizes
    assert "sliding_window" not in sizes and "rms_norm_eps" not in sizes
    assert tiny.smaller(MixtralConfig())["experts_implementation"] == "eager"


def test_lists_of_one_entry_a_layer_are_made_anew() -> None:
    from transformers import Gemma3TextConfig

    released = Gemma3TextConfig(num_hidden_layers=30, query_pre_attn_scalar=64)
    small = transformers.resized(released, {"num_hidden_layers": 2})
    assert len(small.layer_types) == 2 and small.query_pre_attn_scalar == 64


def test_a_head_alone_with_a_plan_is_listed_too() -> None:
    assert "dbrx" in tiny.architectures()  # its layers have none
    assert "bert" not in tiny.architectures() and "gpt2" not in tiny.architectures()
    assert tiny.plan_of("llama")["lm_head"] == "colwise_gather_output"


@pytest.mark.parametrize("adapter", [transformers, pretrained])
def test_releases_without_dtensors_are_skipped_with_the_reason(
    adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.model_of("llama")[1]
    checks = adapter.check(config), adapter.architecture("llama")
    assert [check.spec.cannot_run() for check in checks] == [None, None]
    # as in 5.15 and before
    monkeypatch.setitem(sys.modules, "transformers.distributed.tensor_parallel", None)
    for check in checks:
        reason = check.spec.cannot_run()
        assert reason is not None and reason.endswith("5.16 to 5.24 are supported")


@pytest.mark.parametrize("has", [None, lambda model, config, unheard_of: model])
def test_a_release_that_shards_in_another_way_is_skipped(
    has: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, releases.SHARDS, has)
    reason = releases.why_not()
    assert reason is not None and "takes a mesh" in reason


@pytest.mark.parametrize("adapter", [transformers, pretrained])
def test_a_plan_is_audited_where_one_says_what_stays_whole(adapter: Any) -> None:
    """A plan of the head alone leaves all else whole, and every value is right."""
    config = tiny.model_of("llama")[1]
    case = Case(dims={"batch": 1, "seq": 1, "vocab": VOCAB}, mesh={"tp": 2})
    assert adapter.check(config).plan is None
    norms = ("*norm.weight",)
    for check in (
        adapter.check(config, whole=norms),
        adapter.check(config, plan=Plan({}, whole=norms)),
        adapter.check(config, plan={"lm_head": "colwise"}, whole=norms),
    ):
        plan = check.plan(case)
        assert plan.whole == norms and plan.entries["model.layers.*.self_attn.q_proj"] == "colwise"
    assert plan.entries["lm_head"] == "colwise"


def test_a_rule_of_ones_own_that_matches_nothing_is_a_finding() -> None:
    """Of the plan that is shipped it is none: that serves variants of a model."""
    from transformers import AutoModelForCausalLM

    config = tiny.model_of("llama")[1]
    case = Case(dims={"batch": 1, "seq": 1, "vocab": VOCAB}, mesh={"tp": 2})
    model = AutoModelForCausalLM.from_config(config)
    for key, found in (("model.layers.*.self_attn.o_prj", 1), ("model.layers.*.mlp.up_proj", 0)):
        check = transformers.check(config, plan={key: "rowwise"}, whole=("*norm.weight",))
        codes = [one.code for one in audit(model, check.plan(case), tp=2).findings]
        assert codes.count(Code.PLAN_ENTRY_UNMATCHED) == found
    spare = transformers.check(config, plan=Plan({"none": "rowwise"}, optional=("none",)))
    assert "none" in spare.plan(case).optional
    config.base_model_tp_plan = {**config.base_model_tp_plan, "layers.*.of_a_variant": "colwise"}
    varied = transformers.check(config, whole=("*norm.weight",)).plan(case)
    assert "model.layers.*.of_a_variant" in varied.entries
    assert not audit(model, varied, tp=2).findings
