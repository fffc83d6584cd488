"""Expert parallelism × FSDP2 × TP, three axes of two ranks each:
`tpcheck verify properties/_frameworks/expert_fsdp.py --tp 2 --ranks 8`, or on fewer
`--tp 1 --ranks 4`.
"""

from fixtures.compositions import routed
from tpcheck import Check

expert_parallel_fsdp2 = Check(routed.spec, candidate=routed.candidate)
