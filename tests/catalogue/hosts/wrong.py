"""Checks of wrong candidates: every fourth mutant of some files."""

from fixtures.mutants import attention, collectives, embedding, gradients
from tpcheck.mutation.collect import collect

globals().update(
    {
        mutant.name: mutant.check
        for mutant in collect([collectives, gradients, attention, embedding])[::4]
    }
)
