"""Buffers that no checkpoint holds, and loaders that put parameters of their own in place."""

from fixtures.parallel import alibi as of
from tpcheck import Check

alibi = Check(of.alibi_spec(), candidate=of.build)
alibi_from_meta = Check(of.alibi_spec(), candidate=of.build_on_meta, load=of.load_from_meta)
alibi_assigned = Check(of.alibi_spec(), candidate=of.build, load=of.load_assigned)
