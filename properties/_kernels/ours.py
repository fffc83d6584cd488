"""Our Triton kernels, each against the same function in plain torch."""

import tpcheck
from fixtures.kernels import contracts
from fixtures.kernels.bias_gelu import bias_gelu
from fixtures.kernels.cross_entropy import cross_entropy
from fixtures.kernels.gemm import gemm
from fixtures.kernels.layer_norm import layer_norm
from fixtures.kernels.residual import residual
from fixtures.kernels.rms_norm import rms_norm
from fixtures.kernels.rotary import rotary_in_order
from fixtures.kernels.swiglu import swiglu

bias_gelu_kernel = tpcheck.kernel_check(bias_gelu, **contracts.BIAS_GELU)
layer_norm_kernel = tpcheck.kernel_check(layer_norm, **contracts.LAYER_NORM)
rms_norm_kernel = tpcheck.kernel_check(rms_norm, **contracts.RMS_NORM)
swiglu_kernel = tpcheck.kernel_check(swiglu, **contracts.SWIGLU)
rotary_kernel = tpcheck.kernel_check(rotary_in_order, **contracts.ROTARY)
cross_entropy_kernel = tpcheck.kernel_check(cross_entropy, **contracts.CROSS_ENTROPY)
residual_kernel = tpcheck.kernel_check(residual, **contracts.RESIDUAL)
gemm_kernel = tpcheck.kernel_check(gemm, **contracts.GEMM)
