from configs.configuration import *


class SingleStreamGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "bert"
    scenario = "SingleStream"
