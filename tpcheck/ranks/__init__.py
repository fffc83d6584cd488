"""A rank's side of a case: build, load, run, compare. Imports neither Hypothesis nor pytest."""
