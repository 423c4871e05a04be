from configs.configuration import *


class SingleStreamGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "gptj"
    scenario = "SingleStream"
