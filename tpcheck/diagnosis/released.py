"""Faults of released packages that are recognised though no check declares them: by the line of the
package that is at work, and by what it does there. One of the two alone would be a guess.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tpcheck.causes import Cause, bare
from tpcheck.causes.microbatches import FirstPassRepeated, ReducedWithEach
from tpcheck.comms import frames
from tpcheck.diagnosis.facts import Facts
from tpcheck.evidence import Raised
from tpcheck.evidence.known import KnownAs, Likeness
from tpcheck.known import is_among, release_of
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind, Phase

Frames = Iterable[tuple[str, int]]


@dataclass(frozen=True)
class Released:
    """How such a fault is recognised.

    Args:
        package, releases, page: as in a `KnownFinding`.
        module: the module of the package that it is in, by its dotted name.
        within: the class or function there.
        raises: what is raised there, its type and its text; else it is a collective of backward
            that is entered there, on behalf of the module whose parameter has this cause.
    """

    package: str
    releases: str
    page: str
    module: str
    within: str
    raises: tuple[str, str] | None = None


RELEASED = (
    Released(
        package="transformers",
        releases=">=5.16,<5.25",
        page="docs/findings/transformers-gradient-accumulation.md",
        module="transformers.distributed.tensor_parallel",
        within="ReplicatedWithGradAllReduce",
    ),
    Released(
        package="megatron-core",
        releases="==0.16.*",
        page="docs/findings/megatron-core-router-without-te.md",
        module="megatron.core.transformer.moe.moe_utils",
        within="RouterGatingLinearFunction",
        raises=("NameError", "name 'te_general_gemm' is not defined"),
    ),
)


def recognised(facts: Facts, cause: Cause) -> KnownAs | None:
    """The one that a failing case shows."""
    for one in _here():
        at = _raised_by_ranks(one, facts) if one.raises else _reduced(one, facts, cause)
        if at is not None:
            return _known(one, at)
    return None


def raised(error: BaseException) -> KnownAs | None:
    """The one that a reference has met."""
    said = type(error).__name__, frames.text_of(error)
    stack = traceback.extract_tb(error.__traceback__)
    lines = [(frame.filename, frame.lineno or 0) for frame in reversed(stack)]
    for one in _here():
        if one.raises == said and (at := _inside(one, lines)) is not None:
            return _known(one, at)
    return None


def _here() -> Iterator[Released]:
    return (one for one in RELEASED if is_among(one.package, one.releases))


def _known(one: Released, at: str) -> KnownAs:
    installed = release_of(one.package) or ""
    return KnownAs(one.page, one.package, one.releases, installed, Likeness.SEEN, at)


def _raised_by_ranks(one: Released, facts: Facts) -> str | None:
    for mismatch in facts.result.causes:
        detail = mismatch.detail
        if isinstance(detail, Raised) and (detail.type, detail.text) == one.raises:
            return _inside(one, frames.of_stack(str(detail.scene.stack or "")))
    return None


def _reduced(one: Released, facts: Facts, cause: Cause) -> str | None:
    """Of a gradient to which each microbatch adds what has come together once more: where the
    collective is entered on behalf of its parameter's module."""
    inner = bare(cause)
    if not isinstance(inner, (FirstPassRepeated, ReducedWithEach)):
        return None
    if inner.subject.kind is not Kind.PARAM_GRAD:
        return None
    file = _file(one)
    owner = InPass.parse(inner.subject.name).base.rpartition(".")[0]
    for event in (event for events in facts.again.trace for event in events):
        name, _, line = event.where.rpartition(":")
        backward = event.phase is Phase.BACKWARD and event.module == owner
        if file is not None and backward and name == file.name and line.isdecimal():
            return _inside(one, [(str(file), int(line))])
    return None


def _inside(one: Released, lines: Frames) -> str | None:
    """`moe_utils.py:1192 in RouterGatingLinearFunction`, where the innermost of the user's frames
    is there."""
    file = _file(one)
    innermost = next(iter(lines), None)
    if file is None or innermost is None or Path(innermost[0]).resolve() != file:
        return None
    line = innermost[1]
    return (
        f"{file.name}:{line} in {one.within}" if frames.is_within(file, one.within, line) else None
    )


def _file(one: Released) -> Path | None:
    """Where the module is, which is not imported for it."""
    top, *inside = one.module.split(".")
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # of a module without a spec
        return None
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder, *inside).with_suffix(".py")
        if file.is_file():
            return file.resolve()
    return None
