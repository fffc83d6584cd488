"""Mutants under search: the kill matrix, and the same mutants under the rules of others."""
