"""Fast accumulation in vLLM's fp8 products, on stand-ins for vLLM's kernel and for PyTorch."""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

STAND_IN = Path(__file__).parents[4] / "lab" / "vllm_stand_in"
EXTENSION = "actions.loadgen.in_environment.harness.backends.vllm_fast_accumulation"
KERNELS = "vllm.model_executor.kernels.linear.scaled_mm.pytorch"


@dataclass(frozen=True)
class Tensor:
    """A tensor with nothing but its shape."""

    shape: tuple[int, ...]

    def view(self, *shape: int) -> Tensor:
        return Tensor(shape)


class Torch(ModuleType):
    """Records the arguments of a product."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.asked: list[dict[str, Any]] = []

    def _scaled_mm(self, a: Tensor, b: Tensor, **options: Any) -> Tensor:
        self.asked.append(options)
        return Tensor((a.shape[0], b.shape[1]))

    def narrow(self, tensor: Tensor, dimension: int, start: int, length: int) -> Tensor:
        assert (dimension, start) == (0, 0)
        assert length <= tensor.shape[0]
        return Tensor((length, *tensor.shape[1:]))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    stand_in = Torch()
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"] + [EXTENSION]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return stand_in


@pytest.fixture
def load(torch: Torch) -> Callable[[], Any]:
    """Return a function that loads the extension as vLLM's worker does, and returns vLLM's kernel class."""

    def load() -> Any:
        kernel = importlib.import_module(KERNELS).PerTensorTorchFP8ScaledMMLinearKernel
        importlib.import_module(EXTENSION)
        return kernel

    return load


def test_a_product_is_made_with_fast_accumulation(torch: Torch, load: Callable[[], Any]) -> None:
    product = load()().apply_scaled_mm(
        A=Tensor((17, 64)), B=Tensor((64, 32)), out_dtype="bf16", As="a", Bs="b", bias=None,
        output_shape=[2, 3, 32],
    )  # fmt: skip
    (asked,) = torch.asked
    assert asked == {
        "out_dtype": "bf16", "scale_a": "a", "scale_b": "b", "bias": None, "use_fast_accum": True
    }  # fmt: skip
    assert product.shape == (2, 3, 32)  # without the rows that vLLM had added


def test_the_method_takes_what_vllms_takes(load: Callable[[], Any]) -> None:
    from tests.lab.vllm_stand_in.vllm.model_executor.kernels.linear.scaled_mm import pytorch

    own, theirs = (
        signature(kernel.apply_scaled_mm).parameters
        for kernel in (load(), pytorch.PerTensorTorchFP8ScaledMMLinearKernel)
    )
    assert list(own)[1:] == list(theirs)[1:]
    assert [one.kind for one in own.values()][1:] == [one.kind for one in theirs.values()][1:]


def test_another_vllm_goes_on_without(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, KERNELS, None)
    with caplog.at_level(logging.WARNING):
        extension = importlib.import_module(EXTENSION)
    assert "do not use fast accumulation" in caplog.text
    assert extension.FastAccumulation
