from configs.configuration import *


class OfflineGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "gptj"
    scenario = "Offline"


@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99, PowerSetting.MaxP)
class H100_SXM_80GBx8(OfflineGPUBaseConfig):
    system = KnownSystem.H100_SXM_80GBx8
    gpu_batch_size = 32
    offline_expected_qps = 104


@ConfigRegistry.register(HarnessType.Custom, AccuracyTarget.k_99_9, PowerSetting.MaxP)
class H100_SXM_80GBx8_HighAccuracy(H100_SXM_80GBx8):
    pass
