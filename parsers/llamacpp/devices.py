"""Whether a program of llama.cpp computed on the CPU where a GPU was asked for: it does so, and ends well.

Sources: common/arg.cpp (``--gpu-layers``), ggml/src/ggml-cuda/ggml-cuda.cu (``ggml_cuda_init``),
tools/llama-bench/llama-bench.cpp (``gpu_info``, which tells no more of an option that has no effect).
"""

from __future__ import annotations

import re

__all__ = ["no_gpu"]

_INIT_FAILED = r"^.*ggml_(?:cuda|hip)_init: failed to initialize .*$"
_IGNORED = r"^.*(?:no usable GPU found|not compiled with GPU offload support), --gpu-layers option .*$"
_NO_DEVICE = r'"gpu_info": ""'


def no_gpu(text: str, gpu_layers: int | None) -> str:
    """What a program said of the GPU that it did not use; nothing where it said nothing, or none was wanted.

    Args:
        text: all that it wrote.
        gpu_layers: how many layers were to be on GPUs; None where it chose.
    """
    if gpu_layers == 0:
        return ""
    patterns = (_INIT_FAILED, _IGNORED, _NO_DEVICE) if gpu_layers else (_INIT_FAILED,)
    found = (re.search(pattern, text, re.MULTILINE) for pattern in patterns)
    return next((match.group().strip() for match in found if match), "")
