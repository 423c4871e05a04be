from configs.configuration import *


class OfflineGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "3d-unet"
    scenario = "Offline"
