"""The file that holds a first check, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tpcheck.first.factory import Factory, Imported
from tpcheck.first.inputs import Given
from tpcheck.first.reading import Read
from tpcheck.placement import Blocks, Partial, Placement, Shard

#: What the sizes of inputs are drawn from.
DRAWN = {"batch": "strategies.sizes(1, 4)", "seq": "strategies.sizes(1, 6)"}


def imports(*each: Imported) -> list[str]:
    """Lines that import these."""
    modules: dict[str, list[str]] = {}
    for one in each:
        name = one.top if one.top_as == one.top else f"{one.top} as {one.top_as}"
        modules.setdefault(one.module, []).append(name)
    return [f"from {m} import {', '.join(sorted(set(names)))}" for m, names in modules.items()]


def function(head: str, lines: Iterable[str]) -> list[str]:
    """A function, with the two lines before it."""
    return ["", "", f"def {head}:", *(f"    {line}" for line in lines)]


def call(start: str, arguments: Iterable[str]) -> list[str]:
    """A call with an argument a line."""
    return [f"{start}(", *(f"    {argument}," for argument in arguments), ")"]


def cases(inputs: Sequence[Given], read: Read) -> list[str]:
    """The function that draws the sizes of inputs: a dim that is sharded in whole parts."""
    sizes: dict[str, str] = {}
    for one in inputs:
        sharded = read.inputs.get(one.name)
        for dim, size in enumerate(one.shape):
            if isinstance(size, str):
                own = isinstance(sharded, Shard) and sharded.dim % len(one.shape) == dim
                usual = sizes.get(size, DRAWN.get(size, "strategies.sizes(1, 6)"))
                sizes[size] = 'strategies.multiples("tp")' if own else usual
    return drawing(sizes, read)


def drawing(sizes: Mapping[str, str], read: Read) -> list[str]:
    """The function that draws sizes, name → strategy, at degrees that the candidate has."""
    dims = [f'    "{size}": {strategy},' for size, strategy in sizes.items()]
    valid = f', valid=lambda dims: dims["tp"] in {read.fits}' if read.fits else ""
    lines = ["dims = {", *dims, "}", f"return strategies.cases(space, dims{valid})"]
    return function("cases(space)", lines)


def layout(read: Read, params: Mapping[str, Placement]) -> list[str]:
    """The function that says how tensors are placed."""
    groups = {"params": params, "inputs": read.inputs, "outputs": read.outputs}
    lines = ["return Layout("]
    for group, placed in groups.items():
        if placed:
            lines.append(f"    {group}={{")
            lines += [f'        "{name}": {_placement(own)},' for name, own in placed.items()]
            lines.append("    },")
    return function("layout(case)", [*lines, ")"] if len(lines) > 1 else ["return Layout()"])


def placements(read: Read, params: Mapping[str, Placement]) -> set[str]:
    """The names that the layout needs."""
    used = [*params.values(), *read.inputs.values(), *read.outputs.values()]
    return {"Layout", *(type(own).__name__ for own in used)} | (
        {"Shard"} if any(isinstance(own, Blocks) for own in used) else set()
    )


def _placement(own: Placement) -> str:
    if isinstance(own, Shard):
        return f"Shard({own.dim})"
    if isinstance(own, Partial):
        return "Partial()"
    if isinstance(own, Blocks):
        blocks = own.parts if isinstance(own.parts, int) else len(own.parts)
        return f"Blocks({own.dim}, {blocks})"
    return repr(own)


def name_of(factory: Factory) -> str:
    """The name of the variable that holds the check."""
    return f"{factory.name.replace('.', '_').lower()}_check"
