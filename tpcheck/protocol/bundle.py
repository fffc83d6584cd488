"""The bundle: how a problem reaches the ranks. Tensors as safetensors, the rest as JSON in its
header; no pickle. Small ones of float64 are one tensor there: each that a file has takes longer to
write and to read than its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from json import dumps, loads
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from tpcheck.bounds.scales import flat
from tpcheck.bounds.spread import Spread
from tpcheck.placement import Entry
from tpcheck.protocol.problem import Problem, Target
from tpcheck.protocol.scaling import Overflow
from tpcheck.tensors.forms import dtype_name
from tpcheck.tensors.masks import Chance, Mask
from tpcheck.vocabulary import Kind

#: Elements, at most, of what is written together. With more, copying takes longer than it saves;
#: with fewer, small cases pay for each tensor.
SMALL = 1 << 12
#: Names of parameters that a `Problem` tells apart.
_SETS = ("tied", "terms", "idle")


def write_bundle(
    problems: Sequence[Problem], path: Path, *, own: bool = False, together: bool = True
) -> None:
    """Writes all tensors of a case, by dp coordinate, to one safetensors file (no pickle).

    Args:
        own: also the reference's results in the case's dtype.
        together: small values and σ as one tensor; else each has its name, for others to read.
    """
    tensors: dict[str, Tensor] = {}
    listing: list[list[Any]] = []
    drawn: list[list[Any]] = []
    small: list[dict[str, Tensor]] = [{} for _ in problems]
    for d, problem in enumerate(problems):
        if d == 0:
            tensors |= {f"param/{n}": t for n, t in problem.params.items()}
        for m, inputs in enumerate(problem.inputs):
            tensors |= {f"input/{d}/{m}/{n}": t for n, t in inputs.items()}
        for m, cotangents in enumerate(problem.cotangents):
            tensors |= {f"cotangent/{d}/{m}/{n}": t for n, t in cotangents.items()}
        for suffix, masks in problem.masks.items():
            for i, mask in enumerate(masks):
                tensors[f"mask/{d}/{suffix}/{i}"] = mask.true
                drawn.append([d, suffix, i, mask.chance.true, mask.chance.kept])
        for i, target in enumerate(problem.targets):
            found = target.spread
            for name, each in (("value", target.value), ("sigma", found.sigma)):
                with_others = together and each.numel() <= SMALL
                (small[d] if with_others else tensors)[f"{name}/{d}/{i}"] = each
            if own and target.own is not None:
                tensors[f"own/{d}/{i}"] = target.own
            if target.exact is not None:
                tensors[f"exact/{d}/{i}"] = target.exact
            dtype = dtype_name(target.dtype)
            counts = [getattr(found, field.name) for field in fields(found)[1:]]
            listing.append([d, i, target.kind, target.name, dtype, target.unused, *counts])
    names = [list(inputs) for inputs in problems[0].inputs]  # their order is the call's
    most = [problem.most for problem in problems]
    about = {"targets": dumps(listing), "inputs": dumps(names), "most": dumps(most)}
    about["masks"] = dumps(drawn)
    about |= {of: dumps(sorted(getattr(problems[0], of))) for of in _SETS}
    overflow = problems[0].overflow  # of all dp coordinates
    about["overflow"] = dumps(None if overflow is None else astuple(overflow))
    about["small"] = dumps([{n: list(t.shape) for n, t in some.items()} for some in small])
    tensors |= {f"small/{d}": flat(some.values()) for d, some in enumerate(small) if some}
    save_file(apart(tensors), path, metadata=about)


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each with memory of its own, as a file of safetensors wants them: copied only where one
    before has the same."""
    found: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        shared = tensor.untyped_storage().data_ptr() in memory
        found[name] = tensor.clone() if shared else tensor
        memory.add(found[name].untyped_storage().data_ptr())
    return found


def read_bundle(
    path: Path, d: int, entries: dict[tuple[str, str], Entry], device: torch.device | str
) -> Problem:
    """Reads the problem of dp coordinate `d`; `entries` maps (kind, name) → placement, of
    the targets that are wanted."""
    with safe_open(path, framework="pt", device=str(device)) as bundle:
        about = {name: loads(said) for name, said in bundle.metadata().items()}
        names, overflow = about["inputs"], about["overflow"]
        inputs: list[dict[str, Tensor]] = [{} for _ in names]
        sets: dict[str, Any] = {of: frozenset(about[of]) for of in _SETS}
        problem = Problem(d, inputs=inputs, most=about["most"][d], **sets)
        problem.overflow = None if overflow is None else Overflow(*overflow)
        keys = list(bundle.keys())
        for key in keys:
            what, _, rest = key.partition("/")
            if what == "param":
                problem.params[rest] = bundle.get_tensor(key)
            elif what in ("input", "cotangent"):
                own, m, name = rest.split("/", 2)
                passes = problem.inputs if what == "input" else problem.cotangents
                while len(passes) <= int(m):
                    passes.append({})
                if int(own) == d:
                    passes[int(m)][name] = bundle.get_tensor(key)
        ordered = zip(problem.inputs, names, strict=True)
        problem.inputs = [{n: inputs[n] for n in order} for inputs, order in ordered]
        for own, suffix, i, *chance in about["masks"]:
            if own == d:
                mask = Mask(bundle.get_tensor(f"mask/{d}/{suffix}/{i}"), Chance(*chance))
                problem.masks.setdefault(suffix, []).append(mask)
        known = set(keys)
        small = _small(bundle, d, about["small"][d])
        for own, i, kind, name, dtype, unused, *counts in about["targets"]:
            if own == d and (kind, name) in entries:
                value, sigma = (
                    small[key] if (key := f"{k}/{d}/{i}") in small else bundle.get_tensor(key)
                    for k in ("value", "sigma")
                )
                entry = entries[kind, name]
                spread = Spread(sigma, *counts)
                floats = getattr(torch, dtype)
                low, exact = (
                    bundle.get_tensor(key) if (key := f"{k}/{d}/{i}") in known else None
                    for k in ("own", "exact")
                )
                more = (entry, floats, value, spread, unused, low, exact)
                problem.targets.append(Target(Kind(kind), name, *more))
    return problem


def _small(bundle: Any, d: int, shapes: Mapping[str, list[int]]) -> dict[str, Tensor]:
    """What was written together, by name."""
    if not shapes:
        return {}
    parts = bundle.get_tensor(f"small/{d}").split([math.prod(shape) for shape in shapes.values()])
    each = zip(shapes.items(), parts, strict=True)
    return {name: part.view(shape) for (name, shape), part in each}
