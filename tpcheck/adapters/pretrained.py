"""transformers models as `from_pretrained` loads them at a degree: what is read from a checkpoint,
converted, cut and placed is what must run.

`check(config)` is all that a user needs; `architecture(model_type)` is the same of a tiny model.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from tpcheck.adapters import releases, tiny, transformers
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.known import KnownFinding
from tpcheck.plan.plan import Plan, as_plan


def check(
    config: Any,
    *,
    plan: Plan | Mapping[str, str] | None = None,
    whole: Sequence[str] | None = None,
    name: str = "",
    known: Sequence[KnownFinding] = (),
) -> Check:
    """The check of one configuration's model (its causal LM), loaded by `from_pretrained` under its
    plan, from a checkpoint that `save_pretrained` has written of the case's weights.

    Args:
        config: a transformers configuration, as small as you can make it.
        plan: rules in place of the model's own, as in `adapters.transformers.check`.
        whole: patterns of the parameters that are meant to stay whole, as there.
        name: as in `Check`.
        known: as in `Check`.
    """
    tiny.require(config)
    build = functools.partial(transformers._from_config, config)
    cases = functools.partial(_cases, config)
    rules = as_plan(plan or {})
    audited = transformers.audited(build, plan, whole)
    return _check(build, cases, rules.entries, name, known, audited, unavailable=releases.why_not)


def architecture(model_type: str, *, known: Sequence[KnownFinding] = ()) -> Check:
    """The same of a tiny model of an architecture of the installed transformers. Where there is
    none, the check is skipped with the reason."""
    return _check(
        functools.partial(transformers._tiny, model_type),
        functools.partial(_tiny_cases, model_type),
        name=model_type,
        unavailable=functools.partial(_why_not, model_type),
        known=known,
    )


def _check(
    build: transformers.Build,
    cases: Any,
    rules: Mapping[str, str] = MappingProxyType({}),
    name: str = "",
    known: Sequence[KnownFinding] = (),
    plan: Any = None,
    **more: Any,
) -> Check:
    spec = transformers.spec(build, cases=cases, name=name or "from_pretrained", **more)
    whole = functools.partial(_whole, build)
    loads = functools.partial(load, rules=rules) if rules else load
    # it notes meshes and hooks in the process
    return Check(spec, whole, load=loads, name=name, known=known, plan=plan, processes=True)


def _why_not(model_type: str) -> str | None:
    if (reason := transformers._why_not(model_type)) is not None:
        return reason
    if not tiny.plan_of(model_type):
        return f"the installed transformers has no tp_plan for {model_type}"
    return None


def _whole(build: transformers.Build, case: Case, mesh: DeviceMesh) -> Any:
    """The unsharded model: `load` makes another of its checkpoint."""
    if case.tp > 1 and (reason := transformers.refusal(build(case).config, case.tp)) is not None:
        raise InvalidArgument(reason)
    return build(case)


def load(model: Any, state: Mapping[str, Tensor], rules: Mapping[str, str] | None = None) -> Any:
    """`Check(load=…)`: saves the unsharded model with these weights, and returns what
    `from_pretrained` makes of that over all ranks; the folder's name is sent, and two barriers.

    Args:
        rules: in place of the model's own for the same names.
    """
    from transformers.distributed import DistributedConfig

    model.load_state_dict(state, strict=False)
    model.tie_weights()
    degree = dist.get_world_size()
    options: dict[str, Any] = {"dtype": next(iter(state.values())).dtype}
    if degree > 1:
        plan = {**model.tp_plan, **rules} if rules else "auto"
        options["distributed_config"] = DistributedConfig(tp_plan=plan, tp_size=degree)
    with _folder() as folder:
        model.save_pretrained(folder)  # the first rank writes
        dist.barrier()
        return type(model).from_pretrained(folder, config=model.config, **options)


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """One that all ranks share: the first one's, until all have left."""
    if dist.get_rank():
        given = [""]
        dist.broadcast_object_list(given, src=0)
        yield given[0]
        dist.barrier()
        return
    with tempfile.TemporaryDirectory() as folder:
        dist.broadcast_object_list([folder], src=0)
        yield folder
        dist.barrier()


def _tiny_cases(model_type: str, space: Any) -> Any:
    """Cases whose dtype the checkpoint keeps: some models keep a few of their modules in float32,
    and those of a float64 model are rounded to it, too."""
    from dataclasses import replace

    cls, config = tiny.model_of(model_type)
    narrow = any(getattr(cls, name, None) for name in _KEPT_IN_FLOAT32)
    exact = ("float32",) if narrow else ("float64", "float32")
    dtypes = tuple(dtype for dtype in space.dtypes if dtype in exact)
    return _cases(config, replace(space, dtypes=dtypes or exact))


#: Where a model says which of its modules stay in float32.
_KEPT_IN_FLOAT32 = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")


def _cases(config: Any, space: Any) -> Any:
    """Those of the plan, on all ranks that there are: `from_pretrained` takes the whole world."""
    from dataclasses import replace

    cases = transformers._cases(config, space)
    return cases.map(lambda case: replace(case, mesh={"tp": case.tp}))
