"""The fault campaign (`make torture`): candidates that die, hang, raise, leave state behind, return
rubbish and tamper, and after each of them checks whose verdicts are known.

Not part of `make test`. `python -m tests.catalogue.torture --help` has its options, `--list` the
kinds of faults.
"""
