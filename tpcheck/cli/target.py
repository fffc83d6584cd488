"""What `tpcheck audit` is given on the command line: `MODULE:NAME`, read and called."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tpcheck.case import MOST_RANKS
from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, did_you_mean
from tpcheck.figures.plan import Audit, Source
from tpcheck.first.factory import GROUP, MESH, bound, called, taken, takes_config, the_argument
from tpcheck.first.released import is_of_transformers
from tpcheck.plan.audit import audited
from tpcheck.plan.ignored import ignored
from tpcheck.plan.plan import Plan, as_plan
from tpcheck.plan.unknown_style import fake_mesh, quiet
from tpcheck.search import collect


def audit_target(
    factory: str,
    *,
    plan: str | None,
    tp: int,
    whole: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Audit:
    """Builds a model on the meta device and audits it.

    A factory without arguments gives the unsharded model, and the plan is held against that. One
    that takes a mesh parallelizes the model itself: it is given a mesh of `tp` ranks that are
    not there, and its result is audited as it stands. A configuration of transformers', its class,
    or a class of its models stands for the model. Without `plan`, a transformers model is audited
    under its own `tp_plan`.

    Args:
        factory: `MODULE:NAME`, where MODULE is a dotted name or a file.
        plan: `MODULE:NAME` of entries, of a `Plan`, or of a function model → either.

    Raises:
        InvalidArgument: what is named does not exist, raises, or is not a model or a plan.
    """
    if tp > MOST_RANKS:
        raise InvalidArgument(f"--tp {tp} is more than {MOST_RANKS}")
    build = resolve(factory)

    def declared(model: nn.Module, default: Any = None) -> Plan:
        given = _plan(plan, model, default)
        more = {"whole": tuple(whole), "optional": tuple(optional)}
        return replace(given, **{name: getattr(given, name) + own for name, own in more.items()})

    if isinstance(build, nn.Module):
        return audited(build, declared(build), tp=tp, source=Source.COMMAND)
    if not callable(build):
        raise InvalidArgument(f"{factory} is a {type(build).__name__}; name a function or a class")
    argument = the_argument(build)
    if argument is not None and argument.default is None and plan is not None:
        argument = None  # a module that is whole without it
    if argument is not None and not takes_config(build):
        source = Source.FACTORY if plan is None else Source.COMMAND
        what = _given_a_mesh(factory, argument)
        with fake_mesh(tp) as mesh, quiet():
            with ignored() as skipped:
                model = _build(what, bound(build, argument, mesh))
            held = declared(model, {})
            return audited(model, held, mesh=mesh, source=source, skipped=skipped)
    model = _build(factory, (lambda: build(build.config_class())) if takes_config(build) else build)
    return audited(model, declared(model), tp=tp, source=Source.COMMAND)


def resolve(target: str) -> Any:
    """The object behind `MODULE:NAME`.

    Raises:
        InvalidArgument: no such module, file or name.
    """
    module_name, _, name = target.rpartition(":")
    if not module_name or not name:
        raise InvalidArgument(f"{target!r} is not MODULE:NAME, such as models.py:build")
    if module_name.endswith(".py"):
        (module,) = collect.modules([module_name])
    else:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        try:
            module = importlib.import_module(module_name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = f"{type(error).__name__}: {frames.line_of(error)}"
            raise InvalidArgument(f"{module_name} does not import: {said}") from error
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise InvalidArgument(
                f"{module_name} has no {part!r}{did_you_mean(part, _public(value))}"
            )
        value = getattr(value, part)
    return value


def _public(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


def _given_a_mesh(factory: str, argument: inspect.Parameter) -> str:
    """How a factory is called in messages whose one argument is the mesh to parallelize over.

    Raises:
        InvalidArgument: it is something else, by its annotation or its name.
    """
    takes = taken(factory, argument)
    if takes == GROUP:
        raise InvalidArgument(
            f"{factory} takes a process group, and an audit is of a plan: name a function that "
            "takes a mesh, or one that makes the unsharded model, and --plan"
        )
    return factory if takes == MESH else f"{factory}, given a mesh for {argument.name},"


def _build(factory: str, build: Any, *given: Any) -> nn.Module:
    with torch.device("meta"):
        model = called(factory, build, *given)
        if not isinstance(model, nn.Module) and is_of_transformers(model):
            from transformers import AutoModelForCausalLM

            model = called(factory, AutoModelForCausalLM.from_config, model)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"{factory} returned a {type(model).__name__}, not an nn.Module")
    return model


def _plan(target: str | None, model: nn.Module, default: Any = None) -> Plan:
    if target is not None:
        value = resolve(target)
        return as_plan(called(target, value, model) if inspect.isfunction(value) else value)
    shipped = getattr(model, "tp_plan", None)
    if shipped or default is not None:
        return as_plan(shipped or default)
    raise InvalidArgument(
        f"{type(model).__name__} ships no tp_plan; give --plan MODULE:NAME with the plan's entries"
    )
