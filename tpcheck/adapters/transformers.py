"""transformers models under their own `tp_plan`, on ranks that already run.

`check(config)` is all that a user needs; `candidate` and `spec` are its parts, for who draws
configurations as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from tpcheck import specs
from tpcheck.adapters import releases, tiny
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.known import KnownFinding
from tpcheck.plan.plan import Plan, as_plan, require_patterns
from tpcheck.spec import Spec

Build = Callable[[Case], Any]


def check(
    config: Any,
    *,
    plan: Plan | Mapping[str, str] | None = None,
    whole: Sequence[str] | None = None,
    name: str = "",
    known: Sequence[KnownFinding] = (),
) -> Check:
    """The check of one configuration's model (its causal LM, with random weights) under its plan,
    over random batches, lengths, degrees and dtypes.

    Args:
        config: a transformers configuration, as small as you can make it.
        plan: rules in place of the model's own for the same names, as in
            `DistributedConfig(tp_plan=…)`; or a `tpcheck.Plan` of such rules.
        whole: patterns of the parameters that are meant to stay whole. With one of `plan` and
            `whole` the plan is audited: what it leaves whole and neither names is a FAIL.
        name: as in `Check`.
        known: as in `Check`.

    Raises:
        InvalidArgument: `config` is another thing, or of a model that takes no token ids.
    """
    tiny.require(config)
    build = functools.partial(_from_config, config)
    cases = functools.partial(_cases, config)
    rules = as_plan(plan or {})
    return Check(
        spec(build, cases=cases, unavailable=releases.why_not),
        candidate(build, rules.entries),
        name=name,
        known=known,
        plan=audited(build, plan, whole),
    )


def spec(build: Build, *, cases: Any, name: str = "tp_plan", **more: Any) -> Spec:
    """The spec of a model over token ids; its layout is read from the DTensors of the plan.

    Args:
        build: case → the unsharded model.
        cases: with the dims `batch`, `seq` and `vocab`, and whatever `build` reads.
        more: further fields of `Spec`.
    """
    fields: dict[str, Any] = {"forward": forward, "preload": ("transformers",)} | more
    return specs.causal_lm(build, cases=cases, name=name, **fields)


def candidate(
    build: Build, plan: Mapping[str, str] | None = None
) -> Callable[[Case, DeviceMesh], Any]:
    """The candidate of a `Check`: the model of `build(case)` under the plan that it ships, and
    under rules in place of some of it."""
    return functools.partial(_candidate, build, plan)


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


def resized(config: Any, sizes: Mapping[str, Any]) -> Any:
    """The same configuration with other sizes, as small as a check can hold: what `tpcheck init`
    writes of one of a released model's sizes."""
    return tiny.resized(config, sizes)


def _from_config(config: Any, case: Case) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(config)


def _tiny(model_type: str, case: Case) -> Any:
    return tiny.build(model_type)


def _candidate(build: Build, plan: Mapping[str, str] | None, case: Case, mesh: DeviceMesh) -> Any:
    return apply_tp_plan(build(case), mesh["tp"], plan)


def audited(
    build: Build, plan: Plan | Mapping[str, str] | None, whole: Sequence[str] | None
) -> Callable[[Case], Plan] | None:
    """`Check(plan=…)` of `check(plan=…, whole=…)`: None where there is neither."""
    if plan is None and whole is None:
        return None
    require_patterns("whole", whole)
    return functools.partial(_audited, build, as_plan(plan or {}), tuple(whole or ()))


def _audited(build: Build, rules: Plan, whole: tuple[str, ...], case: Case) -> Plan:
    """The plan as it is applied. The one that is shipped serves variants of a model, so that its
    keys may match nothing; rules that are given are meant."""
    shipped = build(case).tp_plan
    spare = tuple(key for key in shipped if key not in rules.entries)
    return replace(
        rules,
        entries={**shipped, **rules.entries},
        whole=rules.whole + whole,
        optional=rules.optional + spare,
    )


def _why_not(model_type: str) -> str | None:
    if (reason := releases.why_not()) is not None:
        return reason
    try:
        tiny.model_of(model_type)
    except tiny.CantBuild as error:
        return str(error)
    return None


def _tiny_cases(model_type: str, space: Any) -> Any:
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


def apply_tp_plan(model: Any, mesh: DeviceMesh, plan: Mapping[str, str] | None = None) -> Any:
    """Shards a transformers model in place by the plan it ships, as `from_pretrained` would.

    Works on the model in memory and on the mesh given (`from_pretrained` always builds a mesh
    over the whole world). Parameters become DTensors over `mesh`; norms stay replicated.

    Args:
        model: an unsharded model, the same on every rank.
        mesh: the 1-D TP mesh, as `mesh["tp"]`.
        plan: rules in place of the model's own for the same names.

    Raises:
        InvalidArgument: the model has no plan, its head counts don't divide by the degree, or the
            release of transformers is outside the supported range.
    """
    degree = mesh.size()
    if not (plan or getattr(model, "tp_plan", None)):
        raise InvalidArgument(f"{type(model).__name__} ships no tp_plan")
    if (reason := refusal(model.config, degree)) is not None:
        raise InvalidArgument(reason)
    if degree == 1:
        return model
    _untie(model)  # as `from_pretrained`: the plan first, ties after it
    with torch.random.fork_rng(devices=[]):
        releases.distribute(model, mesh, plan)
    model.tie_weights(recompute_mapping=False)
    return model


def _untie(model: Any) -> None:
    """Gives each tied name a parameter of its own."""
    for name in getattr(model, "all_tied_weights_keys", {}):
        owner, _, last = name.rpartition(".")
        tied = model.get_parameter(name)
        setattr(model.get_submodule(owner), last, torch.nn.Parameter(tied.detach().clone()))
