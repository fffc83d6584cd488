"""Mutants and the kill matrix: what shows that the checks can fail."""
