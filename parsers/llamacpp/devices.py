"""Where a program of llama.cpp computes: on the CPU it ends well, too, where a GPU was asked for.

Sources: common/arg.cpp (``--gpu-layers``, ``common_print_available_devices``),
ggml/src/ggml-cuda/ggml-cuda.cu (``ggml_cuda_init``),
tools/llama-bench/llama-bench.cpp (``gpu_info``, which tells no more of an option that has no effect).
"""

from __future__ import annotations

import re

_LISTED = "Available devices:"
_DEVICE = re.compile(r"^  (\S+: .+) \((\d+) MiB, \d+ MiB free\)$", re.MULTILINE)

_INIT_FAILED = r"^.*ggml_(?:cuda|hip)_init: failed to initialize .*$"
_IGNORED = r"^.*(?:no usable GPU found|not compiled with GPU offload support), --gpu-layers option .*$"
_NO_DEVICE = r'"gpu_info": ""'


def devices_of(text: str) -> tuple[str, ...] | None:
    """What a program can compute on beside the CPU, such as ``CUDA0: NVIDIA H100 80GB HBM3``.

    Args:
        text: what it answers to ``--list-devices``.

    Returns:
        Those that have memory of their own, which a BLAS library has not; None where it does not know the
        option.
    """
    if _LISTED not in text:
        return None
    return tuple(match[1] for match in _DEVICE.finditer(text) if int(match[2]))


def no_gpu(text: str, gpu_layers: int | None, devices: tuple[str, ...] | None = None) -> str:
    """What a program said of the GPU that it did not use; nothing where it said nothing, or none was wanted.

    A build that can offload over a network says nothing where it has no GPU: its devices tell.

    Args:
        text: all that it wrote.
        gpu_layers: how many layers were to be on GPUs; None where it chose.
        devices: those that it lists; None where they are not known.
    """
    if gpu_layers == 0:
        return ""
    patterns = (_INIT_FAILED, _IGNORED, _NO_DEVICE) if gpu_layers else (_INIT_FAILED,)
    found = (re.search(pattern, text, re.MULTILINE) for pattern in patterns)
    said = next((match.group().strip() for match in found if match), "")
    return said or ("it lists no GPU (--list-devices)" if gpu_layers and devices == () else "")
