"""Triton kernels on a rank: an interpreter that computes as a GPU does, and what programs read and
write.
"""
