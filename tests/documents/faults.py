"""What is wrong with a page, without running it: fragments, dead links, files that are gone."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT
from tests.documents.blocks import Block, blocks, prose, spans

LANGUAGES = ("python", "sh", "console", "text", "json", "yaml")


def bad_blocks(text: str) -> Iterator[str]:
    """Blocks that nothing checks, and Python that is a fragment."""
    found = blocks(text)
    later = "\n".join(prose(text).splitlines())
    for block in found:
        if block.language not in LANGUAGES:
            yield f"line {block.line}: a block of {block.language or 'no language'}"
        if block.language == "python":
            yield from _fragments(block)
        if block.language == "json":
            json.loads(block.text)
        others = "\n".join(other.text for other in found if other.line > block.line)
        if block.file and Path(block.file).stem not in others:
            yield f"line {block.line}: nothing runs {block.file}"
    if later.count("```"):
        yield "a fence that does not close"


def _fragments(block: Block) -> Iterator[str]:
    if "…" in block.text or "..." in block.text:
        yield f"line {block.line}: an ellipsis in a Python block"
    try:
        ast.parse(block.text)
    except SyntaxError as error:
        yield f"line {block.line + (error.lineno or 1) - 1}: {error.msg}"


def bad_paths(text: str) -> Iterator[str]:
    """Files and folders that sentences name, from the checkout or below `tpcheck/`, and that are
    not there. Tables with a row `where` are about other packages, and name theirs."""
    theirs = {line for line in text.splitlines() if line.startswith("| where |")}
    own = {name for block in blocks(text) if (name := block.file)}
    for line, code in spans(text):
        path = code.partition("::")[0]
        if not re.fullmatch(r"[\w.*-]+/|(\w[\w.*-]*/)+[\w.*-]*|\w[\w-]*\.(py|md|toml)", path):
            continue
        made = path.startswith(("dist/", "site/"))
        if made or path in own or any(code in line for line in theirs):
            continue
        bases = (ROOT, ROOT / "tpcheck", ROOT / "docs", ROOT / "docs" / "findings")
        if not any(list(base.glob(path)) for base in bases):
            yield f"line {line}: no file {path}"


def dead_links(page: Path, text: str) -> Iterator[str]:
    """Links to files and headings that are not there."""
    body = re.sub(r"`[^`\n]*`", "", prose(text))
    for target in re.findall(r"\]\(([^)\s]+)\)", body):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(text if file == page else file.read_text()):
            yield f"{target}: no such heading"


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = sum(bool(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other)) for other in found)
        found.add(f"{anchor}-{again}" if again else anchor)
    return found


#: What is grammar of another language in English: the distributive "a", "is no" for "is not a",
#: and words for which torch has its own.
FOREIGN = (
    r"\b(?:verdict|line|region|folder|one|bytes|elements|seconds|cases?) a (?!time\b|few\b)[a-z]+",
    r"(?<!there )\b(?:is|are|was) no (?!longer\b|more\b)[a-z]+",
    r"\bmend(?:s|ed|ing)?\b",
    r"\bas ever\b|\bdullest\b|\bheld whole\b",
    r"\bcut (?:along|by|over)\b",
    r"\bthe design\b|\bthe source\b|\bthe chapter\b",
)


def foreign(text: str) -> Iterator[str]:
    """Turns of phrase that a reader stumbles over."""
    for number, line in enumerate(prose(text).splitlines(), 1):
        for pattern in FOREIGN:
            for found in re.findall(pattern, re.sub(r"`[^`]*`|“[^”]*”", "``", line), re.IGNORECASE):
                yield f"line {number}: {found!r}"


def machine_paths(text: str) -> Iterator[str]:
    """Absolute paths of the machine on which a sample was taken."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"/(work|home|root|usr|opt|Users)/|site-packages/", line):
            yield f"line {number}: {line.strip()}"
