"""How far from the reference a correct result may be; `docs/bounds.md`, chapter by chapter."""
