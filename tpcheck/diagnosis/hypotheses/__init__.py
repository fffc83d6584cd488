"""Hypotheses about wrong values: each one a statement that the ranks' tensors can refute.

`evident` asks one mismatch alone, `tensor` the wrong tensor on its ranks, `rows` the rows of it,
`loaded` what the loader left in the parameters, `several` other tensors of the case and the trace,
`altered` and `terms` the reference under other inputs, cotangents or parameters (`reference`),
`microbatches` the reference of some of them or in another order, `reruns` the candidate in another
case. `order` says which is asked first.
"""
