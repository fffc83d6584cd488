"""A process that has imported the modules of a candidate, and that ranks are forked from: one
import for all of them, for those that replace them, and for the ranks of other candidates of the
same modules. It imports and does nothing else; a rank then unpickles its candidate.

The zygote forks another where the modules differ, so that what is done when they are imported
reaches nobody who does not import them. Where ranks would not be what they are when each imports by
itself, it says so and ends, and they are forked from the zygote.
"""

from __future__ import annotations

import contextlib
import os
import socket
from os import getppid
from pathlib import Path
from typing import Any

import cloudpickle

from tpcheck.kernels import interpreter
from tpcheck.process import garbage, guard
from tpcheck.process.inherited import not_inherited
from tpcheck.process.lineage import take_orphans
from tpcheck.protocol import ends
from tpcheck.protocol.messages import Teach
from tpcheck.ranks import compiled
from tpcheck.ranks.candidates import Candidates
from tpcheck.ranks.forker import Forker
from tpcheck.ranks.host import prepare, serve_host
from tpcheck.ranks.worlds import asked_for_the_world


class Template(Forker):
    """Forks hosts that have the modules until the driver or the zygote is gone."""

    def __init__(self, control: socket.socket, zygote: int, candidates: Candidates) -> None:
        super().__init__(control, zygote)
        self.candidates = candidates

    def become(self, request: dict[str, Any], talks: int, memory: int) -> None:
        serve_host(talks, memory, request, self.candidates)


def serve_template(control: int, memory: int, engine: str) -> None:
    """Entry of the process: imports, says whether ranks can be forked, forks them.

    Args:
        control: the descriptor of its socket to the driver.
        memory: that of a file with a `Teach` without its candidate, pickled.
    """
    zygote, talks = getppid(), ends.taken_over(control)
    take_orphans()
    candidates = prepare(engine)
    given: Teach = cloudpickle.loads(Path(f"/proc/self/fd/{memory}").read_bytes())
    os.close(memory)
    unfit = _imported(candidates, given)
    if interpreter.is_loaded():  # by ranks it would be, each by itself
        interpreter.install()
    guard.read_ahead()
    compiled.forget_rules()
    _print_nowhere()
    garbage.set_aside()  # else each rank looks through it, and so has a copy of its own
    template = Template(talks, zygote, candidates)
    try:
        template.send({"unfit": unfit})
        if not unfit:
            template.answer()
    finally:
        template.end_children()


def _imported(candidates: Candidates, given: Teach) -> list[str]:
    """Imports the modules; what keeps ranks from being forked from here."""
    before = not_inherited()
    with asked_for_the_world() as asked:
        error = candidates.find(given)
    after = not_inherited()
    unfit = [name for name in before if before[name] != after[name]]
    return [*unfit, *(["an error"] if error else []), *(["the world"] if asked else [])]


def _print_nowhere() -> None:
    """What the import printed has been said; nobody reads on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    os.close(nowhere)
