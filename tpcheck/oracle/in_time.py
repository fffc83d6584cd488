"""What a spec's callables may do in the driver, and for how long."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from tpcheck.case import Case
from tpcheck.comms import frames
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.oracle.limit import TimeUp, one_process, within
from tpcheck.process.alone import alone
from tpcheck.process.surroundings import same_filters
from tpcheck.process.threads import one_thread
from tpcheck.relation import OnOneRank
from tpcheck.spec import Spec


@contextlib.contextmanager
def in_time(spec: Spec, case: Case, seconds: float) -> Iterator[None]:
    """Nothing in the block runs for ever, or ends the driver: either is the spec's trouble; nor
    does it make errors of others' warnings, or take processors from the ranks."""
    try:
        with one_process(), same_filters(), _world_of(spec), within(seconds), one_thread():
            yield
    except TimeUp:
        raise InvalidArgument(
            f"spec {spec.name!r}: its reference took longer than {seconds:g} s in "
            f"{case.describe()}; give smaller sizes, or a larger --time-limit"
        ) from None
    except Exception:
        _forget_compiled()
        raise
    except BaseException as error:
        let_through(error)
        raise InvalidArgument(f"spec {spec.name!r}: {frames.in_a_line(error)}") from error


def _world_of(spec: Spec) -> contextlib.AbstractContextManager[None]:
    """Where the spec's reference runs."""
    return alone() if isinstance(spec.reference, OnOneRank) else contextlib.nullcontext()


def _forget_compiled() -> None:
    """What torch has compiled under a mode of ours fails later, without it, in another's
    reference."""
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
