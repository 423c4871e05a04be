from configs.configuration import *


class OfflineGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "bert"
    scenario = "Offline"
