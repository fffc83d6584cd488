"""Examples of every cause, by the module of `tpcheck/causes/` that it is in."""

from __future__ import annotations

from typing import Any

from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Kind

#: A cause, its sentence, and the evidence that its JSON has, and had before causes were data.
Said = tuple[Any, str, dict[str, Any]]

OUT = Subject(Kind.OUTPUT, "output")
LATER = Subject(Kind.OUTPUT, "output@1")
DX = Subject(Kind.INPUT_GRAD, "x")
DW = Subject(Kind.PARAM_GRAD, "up.weight")
