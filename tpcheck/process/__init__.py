"""The state of a process that code under test may leave changed: read before it runs, and restored
after it where that is possible."""
