"""TP × `torch.compile`. Each new shape compiles for seconds, so `tpcheck verify properties` leaves
this file out: `tpcheck verify properties/_frameworks/compile.py --examples 6`.
"""

from fixtures.compositions import wrapped
from tpcheck import Check

tp_compile = Check(wrapped.compiling, candidate=wrapped.compiled)
