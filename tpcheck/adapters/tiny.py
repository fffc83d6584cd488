"""Tiny configurations of transformers architectures, for a sweep over all that ship a `tp_plan`.

Sizes go by the names that transformers' configurations share. What such a table can't know (an
architecture that takes images, a validator with rules of its own) is a `CantBuild` with the reason.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tpcheck.adapters.tiny_sizes import OWN, SHARED_HEADS, SIZES, VARIANTS
from tpcheck.errors import InvalidArgument, did_you_mean, shown

#: Parameters of a tiny model, at most. Where it is too large, a model whose sizes the table does
#: not know is run at its own size; where it is too small, architectures that would run are skipped.
MOST_PARAMETERS = 1_000_000
#: Characters of an architecture's own error that a skipped check shows. More don't fit on its
#: line; fewer cut the reason off.
SAID = 160
#: Grouped products, the default for experts, have no float64.
EAGER = {"experts_implementation": "eager"}


class CantBuild(InvalidArgument):
    """No tiny model of this architecture can be built, or it takes no token ids."""


def architectures() -> list[str]:
    """Every `model_type` of the installed transformers whose configuration ships a plan, or whose
    causal LM has one of its own (of its head alone, say)."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return [
        name
        for name in CONFIG_MAPPING_NAMES
        if getattr(CONFIG_MAPPING[name], "base_model_tp_plan", None) or _head_has_a_plan(name)
    ]


def _head_has_a_plan(model_type: str) -> bool:
    """By the text of its module: to import all of them takes a minute."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return False
    configured = CONFIG_MAPPING[model_type].__module__
    spec = importlib.util.find_spec(configured.replace("configuration_", "modeling_"))
    if spec is None or spec.origin is None:
        return False
    return _OWN_PLAN.search(Path(spec.origin).read_text(encoding="utf-8")) is not None


#: A class's plan that is not empty.
_OWN_PLAN = re.compile(r"^    _tp_plan = \{\s*[\"']", re.MULTILINE)


def plan_of(model_type: str) -> dict[str, str]:
    """The plan of a tiny model of an architecture, its head's among it."""
    return dict(on_meta(model_of(model_type)[1]).tp_plan or {})


def styles(model_type: str) -> set[str]:
    """The styles that an architecture's plan uses; none where it has no plan, or is not known."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    known = model_type in CONFIG_MAPPING_NAMES
    plan = getattr(CONFIG_MAPPING[model_type], "base_model_tp_plan", None) if known else None
    return set((plan or {}).values())


@functools.cache
def model_of(model_type: str) -> tuple[type[nn.Module], Any]:
    """The architecture's model class (its causal LM where it has one) and a tiny configuration
    with which it runs forward and backward.

    Raises:
        CantBuild: with the first reason met.
    """
    from transformers.utils import logging

    # for the process: the model is built on every rank, and each would log the same advice
    logging.set_verbosity_error()
    return _first_that_runs(functools.partial(_config, model_type, own) for own in VARIANTS)


def on_meta(config: Any, of: Any = None) -> Any:
    """The model of a configuration, of which nothing is allocated.

    Args:
        of: its class; None for that of language models.

    Raises:
        CantBuild: no model class takes it.
    """
    with torch.device("meta"):
        return (of or _model_class(type(config)))(config)


def smaller(config: Any) -> dict[str, Any]:
    """The sizes with which a configuration's model is tiny, and runs forward and backward: those
    that are not as they were, for `resized`.

    Raises:
        CantBuild: with the first reason met.
    """
    own = OWN.get(config.model_type, {})
    heads, kv_heads = (value(config, f"num_{kind}_heads") for kind in ("attention", "key_value"))
    shared = isinstance(kv_heads, int) and isinstance(heads, int) and kv_heads < heads
    variants = [*[SHARED_HEADS] * shared, *VARIANTS]
    sizes = [_sizes(config, one) | own for one in variants]
    named = dict.fromkeys(name for one in sizes for name in one)
    eager = EAGER if any("expert" in name for name in named) else {}
    _, small = _first_that_runs(functools.partial(resized, config, one | eager) for one in sizes)
    changed = {name: value(small, name) for name in named}
    return {name: size for name, size in changed.items() if size != value(config, name)} | eager


def require(config: Any) -> None:
    """Raises `InvalidArgument` unless it is a configuration of transformers, of token ids."""
    if isinstance(config, type) or not hasattr(config, "model_type"):
        raise InvalidArgument(f"check({shown(config)}): give a configuration, as LlamaConfig(…) is")
    if not isinstance(value(config, "vocab_size"), int):
        name = type(config).__name__
        raise InvalidArgument(f"check({name}(…)): it has no vocab_size, and takes no token ids")


def resized(config: Any, sizes: Mapping[str, Any]) -> Any:
    """The same configuration with other sizes; a list of one entry a layer, and whatever else its
    class has by default, is made anew."""
    cls, layers = type(config), value(config, "num_hidden_layers")
    usual = cls().to_dict()
    own = {
        name: given
        for name, given in config.to_dict().items()
        if given != usual.get(name) and not (isinstance(given, list) and len(given) == layers)
    }
    return cls(**own | dict(sizes))


def _first_that_runs(configs: Iterable[Callable[[], Any]]) -> tuple[type[nn.Module], Any]:
    """The first of these configurations whose model runs, with its class."""
    reason = ""
    for make in configs:
        try:
            config = make()
            cls = _model_class(type(config))
            _try(cls, config)
            return cls, config
        except Exception as error:
            said = " ".join(str(error).split())[:SAID]
            reason = reason or (said if isinstance(error, CantBuild) else _named(error, said))
    raise CantBuild(f"can't be built tiny: {reason}")


def _named(error: Exception, said: str) -> str:
    return f"{type(error).__name__}: {said}"


def build(model_type: str) -> Any:
    """A tiny model with random weights, in eval mode: in training some draw random numbers."""
    cls, config = model_of(model_type)
    return cls(config).eval()


def _config(model_type: str, variant: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        known = did_you_mean(str(model_type), CONFIG_MAPPING)
        raise CantBuild(f"transformers has no architecture {shown(model_type)}{known}")
    cls = CONFIG_MAPPING[model_type]
    usual = cls()
    fields = _sizes(usual, variant) | _without_dropout(usual)
    rope = value(usual, "rope_parameters")
    if "mrope_section" in variant and isinstance(rope, dict):
        fields["rope_parameters"] = {**rope, "mrope_section": variant["mrope_section"]}
    fields |= {"attn_implementation": "eager"} | EAGER
    return cls(**fields | OWN.get(model_type, {}), use_cache=False)


def _sizes(usual: Any, variant: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a configuration has a field for, and uses (or the variant says so)."""
    out: dict[str, Any] = {}
    for name, size in {**SIZES, **variant}.items():
        forced = name in variant or name.endswith("token_id")
        if value(usual, name) is not None or (forced and name in vars(usual)):
            out[name] = size
    return out


def _without_dropout(usual: Any) -> dict[str, Any]:
    return {
        name: 0.0
        for name, rate in vars(usual).items()
        if "dropout" in name and isinstance(rate, (int, float)) and not isinstance(rate, bool)
    }


def value(config: Any, name: str) -> Any:
    """An attribute, or None: some raise where it differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def _model_class(config_class: type) -> Any:
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING):
        if config_class in mapping:
            classes = mapping[config_class]
            return classes[0] if isinstance(classes, (tuple, list)) else classes
    name = config_class.__module__.replace("configuration_", "modeling_")
    for cls in vars(importlib.import_module(name)).values():
        if not (inspect.isclass(cls) and issubclass(cls, PreTrainedModel)):
            continue
        here = cls.__module__ == name and not cls.__name__.endswith("PreTrainedModel")
        if here and getattr(cls, "config_class", None) is config_class:
            return cls
    raise CantBuild("no model class takes this configuration")


def _try(cls: type[nn.Module], config: Any) -> None:
    """One forward and backward, after a look at the size on the meta device."""
    with torch.device("meta"):
        count = sum(p.numel() for p in cls(config).parameters())
    if count > MOST_PARAMETERS:
        raise CantBuild(f"{count:,} parameters are left with the sizes that all share")
    with torch.random.fork_rng(devices=[]):
        model: Any = cls(config).double()
        output(model(input_ids=torch.tensor([[3, 5, 7, 4]]))).sum().backward()


def output(result: Any) -> torch.Tensor:
    """The logits, or the last hidden state of a model without a head."""
    for name in ("logits", "last_hidden_state"):
        tensor = getattr(result, name, None)
        if tensor is not None:
            return tensor
    raise CantBuild("its output has neither logits nor a last hidden state")
