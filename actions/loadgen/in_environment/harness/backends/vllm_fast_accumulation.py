"""Enable fast accumulation for the fp8 matrix products that vLLM passes to cuBLAS.

vLLM 0.22 calls ``torch._scaled_mm`` with its default, which moves sums of fp8 products from the tensor cores
to fp32 registers every few steps. vLLM's own choice on Hopper, CUTLASS, accumulates them in the tensor cores
with fewer bits, which is faster and takes less power. cuBLAS does the same if allowed.

The engine imports the class by its name (``worker_extension_cls``) in each of its workers, before it loads
the model. Only weights with one scale per tensor are affected, with ``linear_backend: torch``.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger(__name__)


class FastAccumulation:
    """An empty extension of vLLM's worker; importing this module has the effect."""


def _product(
    _: Any,
    *,
    A: Any,  # noqa: N803  (vLLM's names)
    B: Any,  # noqa: N803
    out_dtype: Any,
    As: Any,  # noqa: N803
    Bs: Any,  # noqa: N803
    bias: Any,
    output_shape: Sequence[int],
) -> Any:
    """Multiply as vLLM's method does, with fast accumulation."""
    output = torch._scaled_mm(  # noqa: SLF001  (PyTorch's only name for it)
        A, B, out_dtype=out_dtype, scale_a=As, scale_b=Bs, bias=bias, use_fast_accum=True
    )
    # Remove the rows that vLLM adds to have more than 16.
    return torch.narrow(output, 0, 0, math.prod(output_shape[:-1])).view(*output_shape)


try:
    from vllm.model_executor.kernels.linear.scaled_mm.pytorch import PerTensorTorchFP8ScaledMMLinearKernel
except ImportError:
    _LOG.warning("this vLLM computes its fp8 products elsewhere: they do not use fast accumulation")
else:
    PerTensorTorchFP8ScaledMMLinearKernel.apply_scaled_mm = _product
