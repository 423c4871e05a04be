"""The sections in NVIDIA's code are read; missing ones are added to it, and nothing else is changed."""

from __future__ import annotations

import ast

import pytest

from actions.nvidia_harness.failures import remedy_for, silent_failure
from actions.nvidia_harness.known_configs import Registered, known_gpu, registered_configs
from actions.nvidia_harness.system_section import class_section, custom_system, with_block, without_block
from agent.core.errors import HostError
from gpu_configs.systems import Tuned

CONFIGS = """\
from configs.configuration import *

class OfflineGPUBaseConfig(GPUBaseConfig):
    scenario = Scenario.Offline

@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99, PowerSetting.MaxP)
class H100x1(OfflineGPUBaseConfig):
    system = KnownSystem.H100_SXM_80GBx1

@ConfigRegistry.register(HarnessType.Triton, AccuracyTarget.k_99_9, PowerSetting.MaxQ)
class H100x1_HighAccuracy(H100x1):
    pass
"""
HARDWARE = """\
class KnownGPU(MatchableEnum):
    H100_SXM_80GB = GPU(name="NVIDIA H100 80GB HBM3", pci_id=pci_id_match_list(("2330", "233F")))
    A100_SXM4_40GB = GPU(AliasedName("A100"), 400.0, pci_id_match_list(("20B0",)), 80)
"""
TUNED = {
    "default": Tuned({"gpu_batch_size": 8, "start_from_device": True}, "a test", ("only a start",)),
    "high_accuracy": Tuned({"gpu_batch_size": 4}, "a test"),
}


def test_what_is_registered() -> None:
    more = "@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99_9, PowerSetting.MaxP)\n"
    more += "class Mine(H100x1):\n    pass\n"
    assert registered_configs(CONFIGS, more) == {
        Registered("H100_SXM_80GBx1", "Custom", "k_99", "MaxP"),
        Registered("H100_SXM_80GBx1", "Triton", "k_99_9", "MaxQ"),
        Registered("H100_SXM_80GBx1", "Custom", "k_99_9", "MaxP"),
    }
    with pytest.raises(HostError, match="is not valid Python"):
        registered_configs("class (")


def test_gpus_are_found_by_their_pci_number() -> None:
    assert known_gpu(HARDWARE, "0x2330") == "H100_SXM_80GB"
    assert known_gpu(HARDWARE, "0x20b0") == "A100_SXM4_40GB"
    assert known_gpu(HARDWARE, "0x2901") is None
    assert known_gpu(HARDWARE, None) is None


def test_a_section_says_where_it_is_from_and_leaves_out_what_custom_systems_may_not_have() -> None:
    head, block = class_section("X8", "bert", "Offline", TUNED, custom=True, batch_by_component=True)
    ast.parse(head + block)
    assert (
        "# From a test\n# only a start\n@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99,"
        in block
    )
    assert "gpu_batch_size = {'bert': 8}" in block
    assert "start_from_device" not in block
    assert registered_configs(block) == {
        Registered("X8", "Custom", "k_99", "MaxP"),
        Registered("X8", "Custom", "k_99_9", "MaxP"),
    }
    _, block = class_section("X8", "bert", "Offline", TUNED, custom=False, batch_by_component=False)
    assert "start_from_device = True" in block
    assert "gpu_batch_size = 8\n" in block


def test_a_block_is_put_beside_what_is_there_and_replaced_alone() -> None:
    head, block = custom_system(
        "X8", "H100_SXM_80GB", 8, "CPUConfiguration(layout={}), MemoryConfiguration()"
    )
    ast.parse(head + block)
    mine = "custom_systems = dict()\ncustom_systems['mine'] = 1\n"
    once = with_block(mine, "X8", head, block)
    assert once.startswith(mine)
    assert with_block(once, "X8", head, block) == once
    twice = with_block(once, "Y4", head, block.replace("X8", "Y4"))
    assert twice.count(">>> vcagent") == 2
    assert without_block(without_block(twice, "X8"), "Y4").strip() == mine.strip()
    assert with_block(None, "X8", head, block).startswith(head)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("INFO Detected system did not match any known systems. Exiting. System(…)", "let vcagent add"),
        ("No registered config for bert.Server.X8 for WorkloadSetting(c_99)", "add scenario and config_ver"),
        ("!!!! Dataset cannot be downloaded directly !!!", "licence"),
        ("WARNING: gptj6b dataset is NOT downloaded! Exiting...", "licence"),
    ],
)
def test_what_ends_with_0_and_did_nothing(line: str, remedy: str) -> None:
    assert silent_failure(line) == line
    assert remedy in remedy_for(line, "x.log")


def test_remedies() -> None:
    assert silent_failure("Building engine for bert") is None
    assert "branch 515" in remedy_for("MLPerf requires NVIDIA Driver Version >= 515.xx", "x.log")
    assert "x.log" in remedy_for("nothing that is known", "x.log")
