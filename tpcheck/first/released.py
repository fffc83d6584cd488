"""A first check of a transformers model: of a configuration or its class, of a class of models, or
of a function that makes either. One of a released model's sizes is made small."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn

from tpcheck.adapters import tiny
from tpcheck.errors import InvalidArgument
from tpcheck.first import text
from tpcheck.first.factory import CONFIG, Factory, called
from tpcheck.first.reading import read, whole
from tpcheck.first.room import LARGE, of_size
from tpcheck.first.written import Written, as_isort, of_lines, params_of

#: What is said of a model that is made small.
SHRUNK = (
    "{} has {:,} parameters, and every rank builds it in each case: the check has the sizes in "
    "SMALL, write others there"
)


def of_transformers(factory: Factory, made: Any) -> Written:
    """The check of a transformers model, or configuration, under the plan that it ships.

    Args:
        made: what the factory makes; of a class of models its usual configuration.

    Raises:
        InvalidArgument: it ships no plan, its heads don't divide, or it is large and can't be made
            small.
    """
    from transformers.utils import logging

    from tpcheck.adapters.transformers import apply_tp_plan

    logging.set_verbosity_error()  # it would say the same of each model that is built
    is_model = isinstance(made, nn.Module)
    config = made.config if is_model else made
    vocab = str(_vocab(config))
    small: dict[str, Any] = {}
    if is_model:
        notes = of_size(sum(parameter.numel() for parameter in made.parameters()))
    else:
        small, notes = _small(factory, config)
    if "vocab_size" in small:
        vocab = 'SMALL["vocab_size"]'
    of = whole(_built(factory, small), [])
    found = read(of, lambda mesh: apply_tp_plan(_built(factory, small), mesh), ())
    params = params_of(found, of)
    body = [] if not small else ["", *text.call("SMALL = dict", _arguments(small))]
    body += text.function("build(case)", [f"return {_text(factory, is_model, small)}"])
    sizes = {"batch": "strategies.sizes(1, 2)", "seq": "strategies.sizes(1, 5)"}
    body += text.drawing(sizes | {"vocab": vocab}, found)
    body += text.layout(found, params)
    arguments = ["build", "cases=cases", "layout=layout", f'name="{factory.name}"']
    spec = text.call("spec = transformers.spec", arguments)
    name = text.name_of(factory)
    check = f"{name} = tpcheck.Check(spec, candidate=transformers.candidate(build))"
    names = {"strategies"} | text.placements(found, params)
    by_auto = not is_model and factory.takes != CONFIG
    first = [
        "import tpcheck",
        f"from tpcheck import {', '.join(sorted(names, key=as_isort))}",
        "from tpcheck.adapters import transformers",
        *["from transformers import AutoModelForCausalLM"] * by_auto,
        *text.imports(factory),
    ]
    what = f"{factory.target} under its tp_plan"
    return of_lines(what, first, [*body, "", "", *spec, check], [*found.notes, *notes])


def is_of_transformers(made: Any) -> bool:
    """Whether it is a configuration, or a model that ships a plan."""
    configuration = any(
        cls.__name__ == "PretrainedConfig" or cls.__name__ == "PreTrainedConfig"
        for cls in type(made).__mro__
    )
    return configuration or bool(getattr(made, "tp_plan", None))


def _small(factory: Factory, config: Any) -> tuple[dict[str, Any], list[str]]:
    """The sizes with which a configuration is small, none where it is so already, and what is said
    of that."""
    named = factory.value if factory.takes == CONFIG else None
    model = called(factory.target, partial(tiny.on_meta, of=named), config)
    if not getattr(model, "tp_plan", None):
        raise InvalidArgument(
            f"{type(model).__name__} ships no tp_plan: name a function that makes it, and --plan"
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    if count <= LARGE:
        return {}, []
    try:
        return tiny.smaller(config), [SHRUNK.format(factory.target, count)]
    except tiny.CantBuild as error:
        raise InvalidArgument(
            f"{factory.target} has {count:,} parameters, too many for a check, and {error}: name a "
            "function that returns a configuration with small sizes"
        ) from None


def _built(factory: Factory, small: Mapping[str, Any]) -> Any:
    """The model, whole."""
    from transformers import AutoModelForCausalLM

    from tpcheck.adapters.transformers import resized

    config = factory.value.config_class() if factory.takes == CONFIG else factory()
    if isinstance(config, nn.Module):
        return config
    make = factory.value if factory.takes == CONFIG else AutoModelForCausalLM.from_config
    return called(factory.target, make, resized(config, small) if small else config)


def _text(factory: Factory, is_model: bool, small: Mapping[str, Any]) -> str:
    """As `_built`, in the file."""
    if is_model:
        return factory.text()
    own = f"{factory.called}.config_class()" if factory.takes == CONFIG else factory.text()
    config = f"transformers.resized({own}, SMALL)" if small else own
    make = factory.called if factory.takes == CONFIG else "AutoModelForCausalLM.from_config"
    return f"{make}({config})"


def _arguments(sizes: Mapping[str, Any]) -> list[str]:
    return [f"{name}={size!r}" for name, size in sizes.items()]


def _vocab(config: Any) -> int:
    size, name = getattr(config, "vocab_size", None), type(config).__name__
    if isinstance(size, int):
        return size
    inner = getattr(config, "text_config", None)
    if isinstance(getattr(inner, "vocab_size", None), int):
        raise InvalidArgument(
            f"{name} is of a model that takes more than token ids: name {type(inner).__name__}"
        )
    raise InvalidArgument(f"{name} has no vocab_size: it takes no token ids")
