"""Right formulas in plain torch, under the contracts of our kernels: none may be alarmed. With
`tpcheck calibrate alarms properties/_kernels/formulas.py --tp 1` a thousand cases take seconds.
"""

from typing import Any

import tpcheck
from fixtures.kernels import contracts, formulas


def _check(formula: formulas.Function, contract: dict[str, Any]) -> tpcheck.Check:
    wanted = {name: given for name, given in contract.items() if name != "witness"}
    return tpcheck.kernel_check(formulas.rounded_once(formula), **wanted)


bias_gelu = _check(formulas.bias_gelu, contracts.BIAS_GELU)
layer_norm = _check(formulas.layer_norm, contracts.LAYER_NORM)
layer_norm_by_var_mean = _check(formulas.layer_norm_by_var_mean, contracts.LAYER_NORM)
rms_norm = _check(formulas.rms_norm, contracts.RMS_NORM)
rms_norm_by_matmul = _check(formulas.rms_norm_by_matmul, contracts.RMS_NORM)
swiglu = _check(formulas.swiglu, contracts.SWIGLU)
cross_entropy = _check(formulas.cross_entropy, contracts.CROSS_ENTROPY)
cross_entropy_by_logsumexp = _check(formulas.cross_entropy_by_logsumexp, contracts.CROSS_ENTROPY)
residual = _check(formulas.residual, contracts.RESIDUAL)
linear_in_two = _check(formulas.linear_in_two, contracts.GEMM)
