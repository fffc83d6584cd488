"""Puts the script of a saved case together. Poses the case; nothing of the candidate is run."""

from __future__ import annotations

import importlib.metadata
import sys

from tpcheck import __version__
from tpcheck.check import Check
from tpcheck.errors import CaseError
from tpcheck.report.script import head
from tpcheck.script import of_kernel, of_model
from tpcheck.script.body import Body
from tpcheck.script.pasted import definitions, imports
from tpcheck.search.corpus import Saved
from tpcheck.vocabulary import Kind


def script(saved: Saved, check: Check) -> str:
    """One file that shows a saved case without tpcheck.

    Raises:
        CaseError: what was found can't be shown so, or the candidate is out of a script's reach.
        InvalidArgument: the case can't be posed, or is too large.
    """
    kinds = {mismatch.kind for mismatch in saved.mismatches}
    shown = of_model.SHOWN if check.kernel is None else of_kernel.SHOWN
    if not kinds & shown:
        what = ", ".join(sorted(kinds)) or "no kind that is known"
        raise CaseError(f"case {saved.id} is evidence of {what}, which a script can't show")
    if check.kernel is None:
        body = of_model.of_model(saved, check)
    else:
        body = of_kernel.of_kernel(saved, check, check.kernel)
    return "\n\n".join([_head(saved, body), f"{_imports(body)}\n", _code(saved, body)])


def _head(saved: Saved, body: Body) -> str:
    wanted = ["torch", *["triton"] * bool(body.carried)]
    versions = {name: importlib.metadata.version(name) for name in wanted}
    python = ".".join(map(str, sys.version_info[:3]))
    return head(
        check=saved.check,
        identity=saved.id,
        case=saved.case.describe(),
        candidate=body.candidate.title,
        diagnosis=saved.diagnosis,
        mismatches=saved.mismatches,
        versions={"tpcheck": __version__, "Python": python, **versions},
        run=", or ".join(f"{by} THIS_FILE" for by in ("python", body.launcher) if by),
        notes=body.notes,
    )


def _imports(body: Body) -> str:
    first = ["from __future__ import annotations"]
    if body.environment:
        first += ["", "import os", ""]
        first += [f"os.environ[{name!r}] = {value!r}" for name, value in body.environment.items()]
    more = ["import sys", "import warnings", "import torch", "from math import inf, nan"]
    return "\n".join([*first, "", imports(body.parts, more)])


def _code(saved: Saved, body: Body) -> str:
    parts = [definitions(part) for part in body.parts]
    run = [
        *body.first,
        "torch.set_num_threads(1)",
        f"torch.manual_seed({saved.case.seed})",
        "# memory that is never written reads as NaN",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "warnings.simplefilter('ignore')",
        f"subject = candidate({body.candidate.arguments})",
        f"raises, tell = {_raises(saved)}, {body.tell}",
        f"{body.leave}(ending(lambda: show(subject), raises=raises, tell=tell))",
    ]
    main = "\n".join(["if __name__ == '__main__':", *(f"    {line}" for line in run)])
    return "\n\n\n".join([*body.data, body.show, *parts, _carried(body), main])


def _raises(saved: Saved) -> bool:
    return any(mismatch.kind is Kind.EXCEPTION for mismatch in saved.mismatches)


def _carried(body: Body) -> str:
    if not body.carried:
        return "CARRIED: dict[str, str] = {}"
    each = [f"CARRIED[{name!r}] = r'''{text}\n'''" for name, text in body.carried.items()]
    return "\n\n".join(["CARRIED: dict[str, str] = {}", *each])
