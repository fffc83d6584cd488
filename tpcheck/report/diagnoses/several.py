"""The sentences of `causes.several`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import several as causes
from tpcheck.causes.where import Subject
from tpcheck.report.diagnoses.where import called, either
from tpcheck.vocabulary import Phase


@singledispatch
def sentence(cause: causes.OfSeveral) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.BranchUnsummed) -> str:
    what = f"what {cause.branch} adds to it is not summed over the ranks"
    return f"{called(cause.subject)}: {what}{_backward(cause.subject)}"


@sentence.register
def _(cause: causes.BranchRepeated) -> str:
    what = f"off by {cause.times} × what {cause.branch} adds to it"
    again = f"that is summed over the ranks once more{_backward(cause.subject)}"
    return f"{called(cause.subject)} is {what}: {again}"


@sentence.register
def _(cause: causes.BranchAveraged) -> str:
    what = f"has 1/{cause.degree} of what {cause.branch} adds to it"
    divided = f"that was averaged over the ranks, not summed{_backward(cause.subject)}"
    return f"{called(cause.subject)} {what}: {divided}"


@sentence.register
def _(cause: causes.UnsummedBefore) -> str:
    joined = " and ".join(cause.joined)
    once = f"summed over ranks {list(cause.ranks)} it equals the reference once {joined} "
    once += "counts once" if len(cause.joined) == 1 else "count once"
    phase = Phase.BACKWARD if cause.subject.kind.is_gradient else Phase.FORWARD
    before = f"an all-reduce is missing before {'it is' if len(cause.joined) == 1 else 'they are'}"
    return f"{called(cause.subject)}: {once}: {before} added ({phase})"


@sentence.register
def _(cause: causes.InEveryTerm) -> str:
    joined = " and ".join(cause.joined)
    once = "it must be added once" if len(cause.joined) == 1 else "they must be added once each"
    what = f"every rank adds {joined} to its term of the sum over ranks {list(cause.ranks)}"
    return f"{called(cause.subject)}: {what}, which is taken after: {once}, after the sum"


@sentence.register
def _(cause: causes.ScaledBefore) -> str:
    what = f"all but {' and '.join(cause.joined)} is {cause.factor:g} × what it should be"
    how = "summed over the ranks twice" if cause.factor > 1 else "averaged over the ranks"
    return f"{called(cause.subject)}: {what}: {how}, before the rest is added"


@sentence.register
def _(cause: causes.JoinsEveryTerm) -> str:
    given = cause.tensor
    if cause.subject.kind.is_gradient:
        given = f"the upstream gradient of {given}"
    off = f"{called(cause.subject)} is off by {cause.times} × {given}"
    return f"{off}: it joins every term of the sum"


@sentence.register
def _(cause: causes.ScaledOverData) -> str:
    factor = cause.factor
    by = f"{factor:g}" if factor > 1 or not factor else f"{1 / factor:g}"
    how = f"{by} × the reference" if factor > 1 else f"1/{by} of the reference"
    if by != f"{cause.dp}":
        how += f": the {cause.dp} dp coordinates' sum, divided by another number than {cause.dp}"
    elif factor < 1:
        how += f": averaged over {either(cause.axes)} once more"
    elif cause.axes == ("dp",):
        how += ": the sum over dp, or divided one time too few"
    else:
        how += f": summed over {either(cause.axes)} once more, or divided one time too few"
    return f"{called(cause.subject)} is {how}"


@sentence.register
def _(cause: causes.OwnDataOnly) -> str:
    what = called(cause.subject)
    return f"{what} comes from the data of each dp rank alone: the sum over dp is missing"


@sentence.register
def _(cause: causes.SomeDataOnly) -> str:
    some = f"dp coordinates {list(cause.coordinates)} of {cause.dp} alone"
    what = f"{called(cause.subject)} comes on rank {cause.rank} from the data of {some}"
    return f"{what}: the sum over the others is missing"


@sentence.register
def _(cause: causes.SummedOverData) -> str:
    what = f"the {'mean' if cause.mean else 'sum'} over the data of all {cause.groups} dp groups"
    where = "over the world instead of the TP group"
    if not cause.world:
        where = "along dp, where each rank has data of its own"
    return f"{called(cause.subject)} is {what}: a collective runs {where}"


@sentence.register
def _(cause: causes.PiecesOverWorld) -> str:
    factor = cause.factor
    how = "the sum" if factor == 1 else f"{factor:g} × the sum"
    if 0 < factor < 1:
        how = f"1/{1 / factor:g} of the sum"
    what = f"{how} of the {cause.pieces} ranks' different pieces"
    return (
        f"{called(cause.subject)} is {what}: a collective runs over the world instead of along dp"
    )


@sentence.register
def _(cause: causes.Overwritten) -> str:
    if cause.op is not None:
        return f"{cause.op} at {cause.where} overwrites a tensor that autograd has saved"
    return f"what was saved for backward at {cause.where} was written over before backward read it"


@sentence.register
def _(cause: causes.AllScaled) -> str:
    over = either(cause.axes) if cause.axes else "the world"
    return f"every parameter's gradient is {cause.factor:g} × the reference, as over {over}"


def _backward(subject: Subject) -> str:
    return " (backward)" if subject.kind.is_gradient else ""
