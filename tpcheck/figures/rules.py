"""What other rules than ours see, as data: `tpcheck mutants --against`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tpcheck.vocabulary import Rule


@dataclass
class Against:
    """What each rule saw.

    Args:
        kills: mutant → the rules that killed it, in `cases` cases.
        candidates: correct candidate → the rules that ever alarmed on it.
        correct: dtype → how many cases of correct candidates.
        alarms: rule → dtype → on how many of those it alarmed.
        troubled: mutant or correct candidate → why it can't run.
    """

    kills: dict[str, set[Rule]] = field(default_factory=dict)
    cases: int = 0
    candidates: dict[str, set[Rule]] = field(default_factory=dict)
    correct: Counter[str] = field(default_factory=Counter)
    alarms: dict[Rule, Counter[str]] = field(
        default_factory=lambda: {rule: Counter() for rule in Rule}
    )
    troubled: dict[str, str] = field(default_factory=dict)

    def killed(self, rule: Rule) -> int:
        """How many mutants the rule killed."""
        return sum(rule in by for by in self.kills.values())

    def missed(self, rule: Rule) -> list[str]:
        """The mutants that it did not kill."""
        return sorted(mutant for mutant, by in self.kills.items() if rule not in by)

    def called_wrong(self, rule: Rule) -> list[str]:
        """The correct candidates on which it alarmed."""
        return sorted(name for name, by in self.candidates.items() if rule in by)
