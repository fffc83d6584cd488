"""transformers models under their own `tp_plan`, on ranks that already run.

`check(config)` is all that a user needs; `candidate` and `spec` are its parts, for who draws
configurations as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from tpcheck import specs
from tpcheck.adapters import tiny
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.known import KnownFinding
from tpcheck.spec import Spec

Build = Callable[[Case], Any]


def check(config: Any, *, name: str = "", known: Sequence[KnownFinding] = ()) -> Check:
    """The check of one configuration's model (its causal LM, with random weights) under its plan,
    over random batches, lengths, degrees and dtypes.

    Args:
        config: a transformers configuration, as small as you can make it.
        name: as in `Check`.
        known: as in `Check`.
    """
    build = functools.partial(_from_config, config)
    cases = functools.partial(_cases, config)
    return Check(spec(build, cases=cases), candidate(build), name=name, known=known)


def spec(build: Build, *, cases: Any, name: str = "tp_plan", **more: Any) -> Spec:
    """The spec of a model over token ids; its layout is read from the DTensors of the plan.

    Args:
        build: case → the unsharded model.
        cases: with the dims `batch`, `seq` and `vocab`, and whatever `build` reads.
        more: further fields of `Spec`.
    """
    fields: dict[str, Any] = {"forward": forward, "preload": ("transformers",)} | more
    return specs.causal_lm(build, cases=cases, name=name, **fields)


def candidate(build: Build) -> Callable[[Case, DeviceMesh], Any]:
    """The candidate of a `Check`: the model of `build(case)` under the plan that it ships."""
    return functools.partial(_candidate, build)


def architecture(model_type: str, *, known: Sequence[KnownFinding] = ()) -> Check:
    """The check of a tiny model of an architecture of the installed transformers. Where there is
    none, the check is skipped with the reason.

    Cases are float64 and float32: what is under test is the plan, and half precision may route a
    token to another expert.
    """
    build = functools.partial(_tiny, model_type)
    return Check(
        spec(
            build,
            cases=functools.partial(_tiny_cases, model_type),
            name=model_type,
            unavailable=functools.partial(_why_not, model_type),
        ),
        candidate(build),
        name=model_type,
        known=known,
    )


def forward(model: Any, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """ids [B, S] → logits [B, S, V], or the last hidden state of a model without a head."""
    return {"output": tiny.output(model(input_ids=inputs["ids"]))}


def refusal(config: Any, degree: int) -> str | None:
    """Why the heads of this configuration can't be split over `degree` ranks, or None."""
    for what in ("num_attention_heads", "num_key_value_heads"):
        count = tiny.value(config, what)
        if isinstance(count, int) and count % degree:
            return f"{what}={count} is not divisible by tp={degree}"
    return None


def _from_config(config: Any, case: Case) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(config)


def _tiny(model_type: str, case: Case) -> Any:
    return tiny.build(model_type)


def _candidate(build: Build, case: Case, mesh: DeviceMesh) -> Any:
    return apply_tp_plan(build(case), mesh["tp"])


def _why_not(model_type: str) -> str | None:
    try:
        tiny.model_of(model_type)
    except tiny.CantBuild as error:
        return str(error)
    return None


def _tiny_cases(model_type: str, space: Any) -> Any:
    from dataclasses import replace

    exact = tuple(dtype for dtype in space.dtypes if dtype in ("float64", "float32"))
    config = tiny.model_of(model_type)[1]
    return _cases(config, replace(space, dtypes=exact or space.dtypes))


def _cases(config: Any, space: Any) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    return strategies.cases(
        space,
        {"batch": st.integers(1, 2), "seq": st.integers(1, 5), "vocab": config.vocab_size},
        valid=lambda dims: refusal(config, dims["tp"]) is None,
    )


def apply_tp_plan(model: Any, mesh: DeviceMesh) -> Any:
    """Shards a transformers model in place by the plan it ships, as `from_pretrained` would.

    Works on the model in memory and on the mesh given (`from_pretrained` always builds a mesh
    over the whole world). Parameters become DTensors over `mesh`; norms stay replicated.

    Args:
        model: an unsharded model, the same on every rank.
        mesh: the 1-D TP mesh, as `mesh["tp"]`.

    Raises:
        InvalidArgument: the model ships no plan, or its head counts don't divide by the degree.
    """
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    degree = mesh.size()
    config = model.config
    if not getattr(model, "tp_plan", None):
        raise InvalidArgument(f"{type(model).__name__} ships no tp_plan")
    if (reason := refusal(config, degree)) is not None:
        raise InvalidArgument(reason)
    if degree == 1:
        return model
    _untie(model)  # as `from_pretrained`: the plan first, ties after it
    plan = model._resolve_parallel_plans(DistributedConfig(tp_size=degree))[0]
    model._tp_size, model._device_mesh = degree, mesh
    with torch.random.fork_rng(devices=[]):
        apply_tensor_parallelism(model, mesh, plan)
    model.tie_weights(recompute_mapping=False)
    return model


def _untie(model: Any) -> None:
    """Gives each tied name a parameter of its own."""
    for name in getattr(model, "all_tied_weights_keys", {}):
        owner, _, last = name.rpartition(".")
        tied = model.get_parameter(name)
        setattr(model.get_submodule(owner), last, torch.nn.Parameter(tied.detach().clone()))
