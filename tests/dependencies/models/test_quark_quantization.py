"""Quantising a model with Quark: planned, run with a stand-in for Quark, checked, made again, removed.

With VCAGENT_TEST_QUARK, the folder of an environment with amd-quark, torch and transformers, a small model of
Llama 2's form is quantised by Quark itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.environment_script import interpreter
from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts, LocalHost
from agent.facts.amd_gpus import AmdGpu
from agent.facts.torch_build import TorchBuild, torch_build
from dependencies.models.in_environment.model_files.errors import ModelFilesError
from dependencies.models.in_environment.model_files.prepared import packed
from dependencies.models.in_environment.model_files.quark_fp8 import calibration_samples
from dependencies.models.quark_quantization import QuarkQuantization

if TYPE_CHECKING:
    from tests.dependencies.conftest import RealHost

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 172,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "torch_dtype": "float16",
}  # fmt: skip
STAND_IN = {
    "amd_quark-0.13.dist-info/METADATA": "Metadata-Version: 2.1\nName: amd-quark\nVersion: 0.13\n",
    "transformers/__init__.py": """
import json, pathlib, types

class AutoModelForCausalLM:
    def __init__(self, folder):
        values = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.config = types.SimpleNamespace(**values)

    @classmethod
    def from_pretrained(cls, folder, dtype):
        return cls(folder)

    def eval(self):
        pass

    def parameters(self):
        yield types.SimpleNamespace(device="cpu")
""",
    "torch/__init__.py": """
import contextlib, types

cuda = types.SimpleNamespace(is_available=lambda: False)
utils = types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=lambda samples, batch_size: samples))
no_grad = contextlib.nullcontext

def tensor(tokens, device):
    return list(tokens)
""",
    "quark/__init__.py": "",
    "quark/torch.py": """
import json, pathlib

class LLMTemplate:
    @classmethod
    def get(cls, kind):
        if kind != "llama":
            raise ValueError(f"no template {kind}")
        return cls()

    def get_config(self, **settings):
        return settings

class ModelQuantizer:
    def __init__(self, settings):
        self.settings = settings

    def quantize_model(self, model, batches):
        model.told = {**self.settings, "batches": batches}
        return model

    def freeze(self, model):
        return model

def export_safetensors(model, output_dir, **how):
    folder = pathlib.Path(output_dir)
    method = model.config.__dict__.get("method", "quark")
    told = {**vars(model.config), "quantization_config": {"quant_method": method}, "told": [model.told, how]}
    (folder / "config.json").write_text(json.dumps(told))
    if method != "nothing":
        (folder / "model.safetensors").write_bytes(bytes(8))
""",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an environment with a stand-in for Quark."""
    packages = tmp_path / "environment" / "packages"
    for name, text in STAND_IN.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    python = interpreter(packages.parent)
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return packages.parent


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(bytes(64))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    path = tmp_path / "calibration.jsonl"
    rows = ([5, 6, 7, 8], [9, 10], [11])
    path.write_text("".join(json.dumps({"token_ids": packed(row)}) + "\n" for row in rows))
    return path


def quark(model: Path, calibration: Path, environment: Path, **changes: Any) -> QuarkQuantization:
    values = {
        "package_name": "m-fp8", "source": model, "calibration": calibration, "environment": environment,
        "samples": 2, "sequence_length": 3,
    }  # fmt: skip
    return QuarkQuantization(QuarkQuantization.Parameters.model_validate(values | changes))


@pytest.fixture
def asked(model: Path, calibration: Path, environment: Path) -> QuarkQuantization:
    return quark(model, calibration, environment)


def test_it_is_quantised_once_and_again_if_something_changed(
    real_host: RealHost, model: Path, calibration: Path, environment: Path
) -> None:
    asked = quark(model, calibration, environment)
    assert real_host.apply(asked) == ["quantise"]
    assert real_host.apply(asked) == []
    made = real_host.context.package_dir / "m-fp8"
    config = json.loads((made / "config.json").read_text())
    settings, how = config["told"]
    assert settings == {"scheme": "fp8", "kv_cache_scheme": "fp8", "batches": [[5, 6, 7], [9, 10]]}
    assert how == {"custom_mode": "quark", "weight_format": "real_quantized", "pack_method": "reorder"}
    assert (made / "tokenizer.json").is_file()
    note = json.loads((made / "quantised.json").read_text())
    assert (note["quark"], note["device"], note["samples"]) == ("0.13", "cpu", 2)
    assert real_host.apply(quark(model, calibration, environment, samples=1)) == ["quantise"]
    assert real_host.apply(asked) == ["quantise"], "only the link is to be moved back"
    (made / "model.safetensors").write_bytes(bytes(9))
    assert "model.safetensors was changed" in asked.plan(real_host.facts.fresh()).steps[0].reason
    assert real_host.apply(asked) == ["quantise"]


def test_it_is_removed_again_and_its_source_stays(
    real_host: RealHost, model: Path, calibration: Path, environment: Path
) -> None:
    asked = quark(model, calibration, environment)
    (step,) = asked.plan(real_host.facts.fresh()).steps
    real_host.apply(asked)
    assert step.undo is not None
    (removal,) = QuarkQuantization.undo(step.undo, real_host.facts.fresh()).steps
    removal.run(real_host.context)
    assert not (real_host.context.package_dir / "m-fp8").is_symlink()
    assert (model / "config.json").is_file()
    assert QuarkQuantization.undo(step.undo, real_host.facts.fresh()).nothing_to_do


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model_type": "unheard"}, "Quark has no fp8 settings for models of the type unheard"),
        ({"method": "awq"}, "is quantised by awq, not by Quark"),
        ({"method": "nothing"}, "there are no weights"),
    ],
)
def test_a_model_that_is_not_quantised_is_an_error(
    real_host: RealHost, asked: QuarkQuantization, changed: dict[str, str], why: str
) -> None:
    (asked.parameters.source / "config.json").write_text(json.dumps(CONFIG | changed))
    (step,) = asked.plan(real_host.facts.fresh()).steps
    with pytest.raises(DependencyFailedError, match=why):
        step.run(real_host.context)
    assert not (real_host.context.package_dir / "m-fp8").exists()


def test_a_source_without_weights_is_an_error(
    real_host: RealHost, model: Path, calibration: Path, environment: Path
) -> None:
    (model / "model.safetensors").unlink()
    (step,) = quark(model, calibration, environment).plan(real_host.facts.fresh()).steps
    with pytest.raises(DependencyFailedError, match="holds no whole model: there are no weights"):
        step.run(real_host.context)


def test_refusals_of_the_plan(real_host: RealHost, model: Path, calibration: Path, environment: Path) -> None:
    with pytest.raises(HostError, match="the quantised model needs 1e\\+09 GiB"):
        quark(model, calibration, environment, required_space=1e9).plan(real_host.facts.fresh())
    (real_host.context.package_dir / "m-fp8").mkdir()
    with pytest.raises(HostError, match="is not a link to a model"):
        quark(model, calibration, environment).plan(real_host.facts.fresh())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no samples"),
        ('{"prompt": "x"}\n', "has no token ids"),
        ('{"token_ids": []}\n', "has no token ids"),
        ('{"token_ids": "no base64"}\n', "has no token ids"),
    ],
)
def test_calibration_files_that_are_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "calibration.jsonl"
    path.write_text(text)
    with pytest.raises(ModelFilesError, match=why):
        calibration_samples(path, count=2, longest=3)
    with pytest.raises(ModelFilesError, match="cannot be read"):
        calibration_samples(tmp_path / "gone", count=2, longest=3)


ROCM, CUDA = (
    TorchBuild("2.11.0+rocm7.1", "7.1.25424"), TorchBuild("2.14.1+cu130")
)  # fmt: skip
MI300X = AmdGpu("0000:0c:00.0", driver="amdgpu", pci_id="74a1")


def amd_host(asked: QuarkQuantization, torch: TorchBuild | None, hip_visible: str | None = None) -> Facts:
    """Return the facts of a host with one MI300X and this torch in the environment."""
    environment = asked.parameters.environment
    return Facts(
        LocalHost(),
        modelled={
            "amd_gpus": (MI300X,), "gpus": (), "visible_devices": None, "hip_visible_devices": hip_visible,
            "package_dir": Path("/packages"), f"torch_build[{environment}]": torch,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        (CUDA, r"torch 2.14.1\+cu130 of .* is not built for ROCm: Quark would not use this host's"),
        (TorchBuild(), "has no torch"),
        (None, "is not a Python environment"),
    ],
)
def test_amd_s_gpus_need_rocm_s_torch(asked: QuarkQuantization, torch: TorchBuild | None, why: str) -> None:
    with pytest.raises(HostError, match=why) as refused:
        asked.plan(amd_host(asked, torch))
    assert "QuarkEnvironment=/opt/quark" in (refused.value.remedy or "")
    assert [step.name for step in asked.plan(amd_host(asked, ROCM)).steps] == ["quantise"]
    assert [step.name for step in asked.plan(amd_host(asked, torch, "")).steps] == ["quantise"]


def test_an_environment_that_is_not_named_is_refused(asked: QuarkQuantization) -> None:
    without = asked.parameters.model_copy(update={"environment": None})
    with pytest.raises(HostError, match="Quark has no environment: one for AMD's GPUs needs ROCm's torch"):
        QuarkQuantization(without).plan(amd_host(asked, None))


VERSION_FILES = {
    ROCM: "__version__ = '2.11.0+rocm7.1'\ndebug = False\ncuda: Optional[str] = None\n"
    "git_version = '70d99e9'\nhip: Optional[str] = '7.1.25424'\nrocm: Optional[str] = '7.1.0'\n",
    CUDA: "from typing import Optional\n__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
    "hip: Optional[str] = None\n",
    TorchBuild(): "",
}


@pytest.mark.parametrize("build", VERSION_FILES)
def test_what_torch_is_built_for_is_read_by_its_interpreter(tmp_path: Path, build: TorchBuild) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    if text := VERSION_FILES[build]:
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text("raise SystemExit('torch is not imported')\n")
        (site / "torch/version.py").write_text(text)
    assert Facts(LocalHost())[torch_build(tmp_path / "env")] == build
    assert Facts(LocalHost())[torch_build(tmp_path / "nothing")] is None


WRITE_MODEL = (
    "import sys, json; from transformers import LlamaConfig, LlamaForCausalLM\n"
    "LlamaForCausalLM(LlamaConfig(**json.loads(sys.argv[2]))).half().save_pretrained(sys.argv[1])"
)


@pytest.mark.timeout(1800)
@pytest.mark.skipif("VCAGENT_TEST_QUARK" not in os.environ, reason="needs amd-quark: VCAGENT_TEST_QUARK")
def test_quark_itself_quantises_a_small_model(real_host: RealHost, model: Path, calibration: Path) -> None:
    environment = Path(os.environ["VCAGENT_TEST_QUARK"])
    subprocess.run([interpreter(environment), "-c", WRITE_MODEL, model, json.dumps(CONFIG)], check=True)
    assert real_host.apply(quark(model, calibration, environment)) == ["quantise"]
    made = real_host.context.package_dir / "m-fp8"
    found = json.loads((made / "config.json").read_text())["quantization_config"]
    assert found["quant_method"] == "quark"
    assert found["exclude"] == ["lm_head"]
    assert found["global_quant_config"]["weight"]["dtype"] == "fp8_e4m3"
    head = (made / "model.safetensors").read_bytes()[:100_000].decode("utf-8", errors="replace")
    assert '"F8_E4M3"' in head
