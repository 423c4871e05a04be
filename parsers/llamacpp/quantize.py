"""Reads ``llama-quantize``: a line for each tensor, the sizes, the tensors that fell back, the time.

Sources: src/llama-quant.cpp and tools/quantize/quantize.cpp; in 2024 src/llama.cpp and examples/quantize.
Both ``MB`` (2024) and ``MiB`` (today) mean 1024 * 1024 bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from agent.core.errors import ParseError
from agent.core.records import MetadataValue, Metric, Relativity
from parsers.numbers import measured

_MIB = 1024 * 1024
_TENSOR = re.compile(
    r"^\[\s*(?P<number>\d{1,9})/\s*(?P<total>\d{1,9})\] +(?P<name>\S+) +- +\[(?P<shape>[^\]]*)\], "
    r"type = +(?P<type>\w+),.*$",
    re.MULTILINE,
)
_CONVERTED = re.compile(r"converting to (?P<type>\w+) \.\.")
_TENSOR_SIZE = re.compile(
    r"size = +(?P<before>\d+\.\d+) Mi?B(?: -> +(?P<after>\d+\.\d+) Mi?B)?[ \t]*$", re.MULTILINE
)
_SIZE = re.compile(
    r"llama_model_quantize\w*\s*:\s+(?P<which>model|quant) size +=\s+(?P<mib>\S+) (?P<unit>\S+)"
    r"(?: \((?P<bpw>\S+) BPW\))?[ \t]*$",
    re.MULTILINE,
)
_FALLBACK = re.compile(
    r"WARNING: (?P<count>\d{1,9}) of (?P<total>\d{1,9}) tensor\(s\) required fallback quantization"
)
_TIME = re.compile(
    r"(?:main|llama_quantize): +(?P<which>quantize|total) time =\s+(?P<ms>\S+) (?P<unit>\S+)[ \t]*$",
    re.MULTILINE,
)


def has_quantization(text: str) -> bool:
    """Return True if a log is from such a run."""
    return bool(
        re.search(r"(?:llama_model_quantize\w*|^main): quant", text, re.MULTILINE) or _TENSOR.search(text)
    )


def quantization_complete(text: str) -> bool:
    """Return True if the log contains the time, which is printed once the file is complete."""
    return any(match["which"] == "quantize" for match in _TIME.finditer(text))


def tensors_done(line: str) -> tuple[int, int] | None:
    """Return the numbers of finished and of all tensors from a tensor's line; None for any other line."""
    match = _TENSOR.match(line)
    return (int(match["number"]), int(match["total"])) if match else None


def quantization_metrics(text: str) -> tuple[Metric, ...]:
    """Return tensor sizes before and after in bytes, bits per weight, time in seconds, and fallbacks.

    Raises:
        ParseError: if the log contains none of them.
    """
    sizes = {match["which"]: match for match in _SIZE.finditer(text)}
    times = {match["which"]: _in(match, "ms", ("ms",)) for match in _TIME.finditer(text)}
    metrics = []
    for which, name in (("model", "tensors_size_before"), ("quant", "tensors_size")):
        if which in sizes:
            mib = _in(sizes[which], "mib", ("MiB", "MB"))
            metadata: dict[str, MetadataValue] = {"tool_value": mib, "tool_unit": "MiB"}
            metrics.append(
                Metric(name, mib * _MIB, "bytes", Relativity.LOWER, verbosity=2, metadata=metadata)
            )
    if "quant" in sizes and (bits := measured(sizes["quant"]["bpw"], "the bits per weight")):
        metrics.append(Metric("bits_per_weight", bits, "bits", Relativity.LOWER, verbosity=2))
    if "quantize" in times:
        metrics.append(
            Metric(
                "quantize_time",
                times["quantize"] / 1000,
                "seconds",
                Relativity.LOWER,
                verbosity=2,
                metadata={"tool_value": times["quantize"], "tool_unit": "ms"},
            )
        )
    if not metrics:
        raise ParseError("it holds neither sizes nor a time: no tensor was written")
    fallback = _FALLBACK.search(text)
    # In 2024 the count of fallbacks included only tensors with a choice of types: 180 of 210, not of 272.
    total = next((int(match["total"]) for match in _TENSOR.finditer(text)), None)
    if total is None and fallback:
        total = int(fallback["total"])
    if total is not None:
        metrics.append(Metric("tensors", float(total), "count", verbosity=3))
    if fallback or (total is not None and "quantize" in times):  # the tool prints fallbacks before the time
        count = float(fallback["count"]) if fallback else 0.0
        description = (
            "tensors that got another type, since their rows do not fit the blocks of the one asked for"
        )
        metrics.append(Metric("fallback_tensors", count, "count", Relativity.LOWER, description, verbosity=2))
    return tuple(metrics)


def _in(match: re.Match[str], name: str, units: tuple[str, ...]) -> float:
    """Return the number of a size or time; raise ParseError if the number or its unit is not as expected."""
    what = f"the {match['which']} {'size' if name == 'mib' else 'time'}"
    value = measured(match[name], what)
    if value is None or match["unit"] not in units:
        raise ParseError(f"{what} is {match[name]} {match['unit'][:20]}, which is not in {units[0]}")
    return value


@dataclass(frozen=True, slots=True)
class Tensor:
    """Result of the quantisation of one tensor.

    Args:
        name: its name in the model.
        shape: its dimensions, the fastest-varying first.
        type_before: its type in the source, such as ``f16``.
        type_after: its type now.
        bytes_before: its size in the source, in bytes, as exact as the log; None if the line was cut off.
        bytes_after: its size now, in bytes; None if the line was cut off.
    """

    name: str
    shape: tuple[int, ...]
    type_before: str
    type_after: str
    bytes_before: float | None = None
    bytes_after: float | None = None


def quantized_tensors(text: str) -> tuple[Tensor, ...]:
    """Return the tensors in a log, in its order."""
    lines = list(_TENSOR.finditer(text))
    ends = [*(line.start() for line in lines[1:]), len(text)]
    tensors = []
    for line, end in zip(lines, ends, strict=False):  # the last line may be unterminated
        # In 2024 a fallback was reported in between, so that type and size are on a later line.
        converted = _CONVERTED.search(text, line.start(), end)
        size = _TENSOR_SIZE.search(text, line.start(), end)
        before = float(size["before"]) * _MIB if size else None
        after = float(size["after"]) * _MIB if size and size["after"] else before
        tensors.append(
            Tensor(
                line["name"],
                tuple(int(length) for length in re.findall(r"\d{1,18}", line["shape"])),
                line["type"].lower(),
                (converted or line)["type"].lower(),
                before,
                after,
            )
        )
    return tuple(tensors)


def quantization_details(text: str) -> dict[str, MetadataValue]:
    """Return the number of tensors of each type after quantisation: ``tensors_q4_0: 90``."""
    types = Counter(tensor.type_after for tensor in quantized_tensors(text))
    return {f"tensors_{name}": count for name, count in sorted(types.items())}
