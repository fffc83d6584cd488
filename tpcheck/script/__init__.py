"""`tpcheck replay --script`: one file that shows a saved case, without tpcheck.

`write` puts it together. What every script says alike is in `parts/`, as code that runs here, too,
and is pasted; the case's tensors are `literals`, the candidate is found again by `subject`, and
what Triton's interpreter needs is `carried` along.
"""
