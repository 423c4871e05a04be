"""vLLM's fp8 products by PyTorch.

Source: vllm/model_executor/kernels/linear/scaled_mm/pytorch.py (0.22.1).
"""

from __future__ import annotations

from typing import Any

__all__ = ["PerTensorTorchFP8ScaledMMLinearKernel"]


class PerTensorTorchFP8ScaledMMLinearKernel:
    """A kernel for weights and activations with one scale each."""

    def apply_scaled_mm(
        self,
        *,
        A: Any,  # noqa: N803
        B: Any,  # noqa: N803
        out_dtype: Any,
        As: Any,  # noqa: N803
        Bs: Any,  # noqa: N803
        bias: Any,
        output_shape: list[int],
    ) -> Any:
        """Multiply without fast accumulation."""
        raise NotImplementedError
