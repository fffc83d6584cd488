"""A first check, from what is named to the text of its file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from torch import nn

from tpcheck.errors import InvalidArgument, listed
from tpcheck.first import text
from tpcheck.first.factory import GROUP, MESH, Factory, Imported
from tpcheck.first.inputs import Given, of_forward
from tpcheck.first.reading import Read, Whole, patterned, read, whole
from tpcheck.first.room import of_size
from tpcheck.placement import Placement, Replicate, Shard
from tpcheck.plan.audit import audit
from tpcheck.plan.ignored import ignored
from tpcheck.plan.plan import Plan, as_plan
from tpcheck.plan.unknown_style import fake_mesh
from tpcheck.vocabulary import Code

#: What is said of a plan that shards only a part.
WHOLE = "whole on every rank, by the plan: {}; take from WHOLE what is meant to be sharded"
#: What is said of code that shards only a part of what it could.
LEFT = "whole on every rank: {}; where one is meant to be sharded, the layout is to say so"
#: What is said of a key of a plan inside of the code.
SKIPPED = "its plan's key {!r} matches no module: parallelize_module skips it, and only warns"
#: What is said of a weight that may hold several: its shape is that of a plain shard.
MAY_BE_FUSED = (
    "{0} may be fused: where a rank holds a part of each of n blocks, write Blocks({1}, n) in the "
    "place of Shard({1}), or of blocks of several sizes Blocks({1}, ((rows, Shard(0)), …)), and "
    "import it"
)
#: What is said of an argument that neither its name nor its annotation tells, nor what is done
#: with it.
ASSUMED = (
    "{} is taken for a mesh; where it is a process group, annotate it as ProcessGroup, or call it "
    "group"
)
#: What is to be done about an argument that is neither.
BY_ITSELF = "name a function without arguments that makes the module"
#: What is said of one with which nothing is sharded, whatever it is.
NEITHER = (
    "{0} of {1} is not said to be a mesh or a process group, and given either, nothing is sharded: "
    f"{BY_ITSELF}, or annotate {{0}}"
)
_WORDS = {MESH: "mesh", GROUP: "process group"}
#: What such weights are called.
_FUSED = re.compile(r"qkv|gate_?up|up_?gate|w1_?3|query_key_value|in_proj|c_attn|fused|kv_proj")


@dataclass(frozen=True)
class Written:
    """A file's text, and what its reader should know.

    Args:
        runs: whether the candidate's forward ran where it was read.
        sharded: whether it shards a parameter.
    """

    text: str
    notes: tuple[str, ...] = ()
    runs: bool = True
    sharded: bool = True


@dataclass(frozen=True, kw_only=True)
class Planned(Imported):
    """A plan."""

    value: Any


def of_plan(factory: Factory, plan: Planned, inputs: Sequence[str]) -> Written:
    """The check of a module under a plan of `parallelize_module`.

    Raises:
        InvalidArgument: the plan does not apply, or the module's inputs can't be guessed.
    """
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    plan = plan.beside(factory)
    module = _module(factory, factory())
    entries = dict(as_plan(plan.value).entries)
    given = of_forward(module, factory.target, inputs)
    of = whole(module, given)

    def build(mesh: Any) -> nn.Module:
        made = _module(factory, factory())
        try:
            return parallelize_module(made, mesh, entries)
        except Exception as error:
            said = " ".join(str(error).split())
            raise InvalidArgument(f"the plan {plan.name} at tp={mesh.size()}: {said}") from None

    sequence = any(isinstance(style, SequenceParallel) for style in entries.values())
    found = read(of, build, given, sequence=sequence)
    own = isinstance(plan.value, Plan)
    audited = audit(module, as_plan(plan.value), tp=2)
    rows = [] if own else audited.parameters
    left = [row.name for row in rows if row.placement == "whole"]
    kept = list(patterned(dict.fromkeys(left, Replicate()), list(of.full)))
    declared = ["", f"WHOLE = ({', '.join(map(_quoted, kept))},)  # no entry shards them"]
    held = plan.called if own or not kept else f"tpcheck.Plan({plan.called}, whole=WHOLE)"
    body = [*(declared if kept else []), *_of_inputs(given, found, params_of(found, of))]
    check = text.call(
        f"{text.name_of(factory)} = dtensor.check",
        [
            f"lambda case: {factory.text()}",
            held,
            "cases=cases",
            "inputs=inputs",
            "layout=layout",
            f'name="{factory.name}"',
        ],
    )
    names = {"strategies"} | text.placements(found, params_of(found, of))
    first = [
        *(["import tpcheck"] if "tpcheck." in held else []),
        f"from tpcheck import {', '.join(sorted(names, key=as_isort))}",
        "from tpcheck.adapters import dtensor",
        *text.imports(factory, plan),
    ]
    faults = (Code.PLAN_ENTRY_UNMATCHED, Code.WRONG_PLACEMENT)
    notes = [f.message for f in audited.findings if f.code in faults]
    notes += [*found.notes, *of_size(of.parameters)]
    notes += [WHOLE.format(listed(kept))] if kept else []
    what = f"{factory.target} under {plan.name}"
    return of_lines(what, first, [*body, "", "", *check], notes)


def of_candidate(factory: Factory, reference: Factory | None, inputs: Sequence[str]) -> Written:
    """The check of a module that is built on each rank, against a reference, or against itself on
    one rank.

    Raises:
        InvalidArgument: it can't be built or read.
    """
    reference = reference.beside(factory) if reference is not None else None
    with contextlib.ExitStack() as stack:
        if reference is None:
            mesh = stack.enter_context(fake_mesh(1))
            module = _plain(factory, _module(factory, factory(mesh)))
        else:
            module = _module(reference, reference())
        given = of_forward(module, (reference or factory).target, inputs)
        of = whole(module, given)
    skipped: dict[str, str] = {}

    def build(mesh: Any) -> nn.Module:
        with ignored() as keys:
            made = _module(factory, factory(mesh))
        skipped.update(keys)
        return made

    found = read(of, build, given)
    params = params_of(found, of)
    body = _of_inputs(given, found, params)
    body += text.function("candidate(case, mesh)", [f"return {factory.text()}"])
    whose = "None" if reference is None else f"lambda case: {reference.text()}"
    spec = text.call(
        "spec = Spec",
        [
            f'name="{factory.name}"',
            "cases=cases",
            f"reference={whose}",
            "inputs=inputs",
            "layout=layout",
        ],
    )
    kind = "Relation" if reference is None else "Check"
    check = f"{text.name_of(factory)} = tpcheck.{kind}(spec, candidate=candidate)"
    names = {"Spec", "strategies"} | text.placements(found, params)
    needed = [one for one in (factory, reference) if one is not None]
    first = [
        "import tpcheck",
        f"from tpcheck import {', '.join(sorted(names, key=as_isort))}",
        *text.imports(*needed),
    ]
    notes = [*of_size(of.parameters), *found.notes, *map(SKIPPED.format, skipped)]
    notes += _doubts(found, of)
    if reference is None:
        notes.append("its reference is itself on one rank: give --reference for another")
    if not params:
        notes.append("no parameter of it is sharded")
    written = of_lines(factory.target, first, [*body, "", "", *spec, check], notes)
    return replace(written, runs=found.runs, sharded=bool(params))


def of_untold(factory: Factory, reference: Factory | None, inputs: Sequence[str]) -> Written:
    """The check of a module whose factory does not say whether it takes a mesh or a process group:
    with the one that it can be built with, and with which its forward runs.

    Raises:
        InvalidArgument: with neither of them, or with both, and neither shards anything.
    """
    made, why = dict[str, Written](), list[str]()
    for takes in (MESH, GROUP):
        try:
            made[takes] = of_candidate(replace(factory, takes=takes), reference, inputs)
        except InvalidArgument as error:
            why.append(f"given a {_WORDS[takes]}, {error}")
    if not made:
        told = "; ".join(why)
        raise InvalidArgument(f"{factory.argument} of {factory.target}: {told}; {BY_ITSELF}")
    able = {takes: one for takes, one in made.items() if one.runs} or made
    written = next(iter(able.values()))
    if len(able) == 1:
        return written
    if not written.sharded:
        raise InvalidArgument(NEITHER.format(factory.argument, factory.target))
    return replace(written, notes=(*written.notes, ASSUMED.format(factory.argument)))


def _module(factory: Factory, made: Any) -> nn.Module:
    if not isinstance(made, nn.Module):
        raise InvalidArgument(
            f"{factory.target} returned a {type(made).__name__}, not an nn.Module"
        )
    return made


def _plain(factory: Factory, module: nn.Module) -> nn.Module:
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "device_mesh"):
            raise InvalidArgument(
                f"{name} of {factory.target} is a DTensor on one rank, too: give the unsharded "
                "module as --reference MODULE:FACTORY"
            )
    return module


def params_of(found: Read, of: Whole) -> dict[str, Placement]:
    return patterned(found.params, list(of.full))


def _doubts(found: Read, of: Whole) -> list[str]:
    """What its shapes do not say: which matrices stay whole though others are sharded, and which
    may be several in one."""
    matrices = [
        name for name, full in of.full.items() if full.ndim >= 2 and name not in found.params
    ]
    notes = [LEFT.format(listed(matrices))] if found.params and matrices else []
    for name, own in found.params.items():
        if isinstance(own, Shard) and _FUSED.search(name):
            notes.append(MAY_BE_FUSED.format(name, own.dim))
    return notes


def _of_inputs(given: Sequence[Given], found: Read, params: dict[str, Placement]) -> list[str]:
    drawn = [f'"{one.name}": {one.text()},' for one in given]
    inputs = ["return {", *(f"    {line}" for line in drawn), "}"]
    return [
        *text.cases(given, found),
        *text.function("inputs(case, draw)", inputs),
        *text.layout(found, params),
    ]


def as_isort(name: str) -> tuple[bool, str]:
    return name.islower(), name


def _quoted(name: str) -> str:
    return f'"{name}"'


def of_lines(what: str, first: list[str], body: list[str], notes: Sequence[str]) -> Written:
    head = [f'"""A first check of {what}, written by `tpcheck init`.', *map(_noted, notes), '"""']
    head = [head[0] + head[-1]] if not notes else head
    return Written("\n".join([*head, "", *first, *body, ""]), tuple(notes))


def _noted(note: str) -> str:
    """A note in the file's own text, in lines of at most 100 columns."""
    plain = note.replace("\\", "\\\\").replace('"""', '"')
    return "\n" + "\n".join(wrap(f"Note: {plain}", 100, break_long_words=False))
