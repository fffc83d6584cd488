"""Text of others made safe to show: what a terminal would obey and XML can't hold is spelled out.

Names, errors and prints of candidates may hold anything: escape sequences, overrides of the writing
direction, halves of surrogate pairs (file names that are not UTF-8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree


def visible(text: str) -> str:
    """The text with everything but printable characters, line ends and tabs spelled out, as in
    `\\x1b[31m`."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _spelled(c) for c in text)


def one_line(text: str) -> str:
    """The same in one line, runs of blanks being one space."""
    return visible(" ".join(text.split()))


def name(text: str) -> str:
    """A name as it is, in one line."""
    return "".join(c if c.isprintable() else _spelled(c) for c in text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def in_xml(root: ElementTree.Element) -> ElementTree.Element:
    """The tree with every text and attribute made visible: XML 1.0 can hold all of it then."""
    for element in root.iter():
        element.text = element.text and visible(element.text)
        element.attrib = {key: visible(value) for key, value in element.attrib.items()}
    return root


def in_json(value: Any) -> Any:
    """The value as strict JSON in UTF-8 can hold it: keys are text, non-finite numbers the strings
    `nan`, `inf` and `-inf`, and half a surrogate pair is spelled out."""
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {in_json(str(key)): in_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(inner) for inner in value]
    return value
