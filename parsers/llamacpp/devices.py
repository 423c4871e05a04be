"""Detects that a program of llama.cpp used only the CPU, although a GPU was requested; it then exits with 0.

Sources: common/arg.cpp (``--gpu-layers``, ``common_print_available_devices``),
ggml/src/ggml-cuda/ggml-cuda.cu (``ggml_cuda_init``),
tools/llama-bench/llama-bench.cpp (``gpu_info``, which does not report an option that has no effect).
"""

from __future__ import annotations

import re

_LISTED = "Available devices:"
_DEVICE = re.compile(r"^  (\S+: .+) \((\d+) MiB, \d+ MiB free\)$", re.MULTILINE)

_INIT_FAILED = r"^.*ggml_(?:cuda|hip)_init: failed to initialize .*$"
_IGNORED = r"^.*(?:no usable GPU found|not compiled with GPU offload support), --gpu-layers option .*$"
_NO_DEVICE = r'"gpu_info": ""'


def devices_of(text: str) -> tuple[str, ...] | None:
    """Return the devices besides the CPU that a program can use, such as ``CUDA0: NVIDIA H100 80GB HBM3``.

    Args:
        text: the output of ``--list-devices``.

    Returns:
        The devices that have memory of their own (a BLAS library does not have any). None if the program does
        not know the option.
    """
    if _LISTED not in text:
        return None
    return tuple(match[1] for match in _DEVICE.finditer(text) if int(match[2]))


def no_gpu(text: str, gpu_layers: int | None, devices: tuple[str, ...] | None = None) -> str:
    """Return what a program wrote about an unused GPU; "" if it wrote nothing or no GPU was requested.

    A build that can offload over a network prints no message if it has no GPU; its list of devices shows it.

    Args:
        text: all output of the program.
        gpu_layers: number of layers to place on GPUs; None if the program chose.
        devices: the devices that the program lists; None if unknown.
    """
    if gpu_layers == 0:
        return ""
    patterns = (_INIT_FAILED, _IGNORED, _NO_DEVICE) if gpu_layers else (_INIT_FAILED,)
    found = (re.search(pattern, text, re.MULTILINE) for pattern in patterns)
    said = next((match.group().strip() for match in found if match), "")
    return said or ("it lists no GPU (--list-devices)" if gpu_layers and devices == () else "")
