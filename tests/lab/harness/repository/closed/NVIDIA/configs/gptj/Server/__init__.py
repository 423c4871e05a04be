from configs.configuration import *


class ServerGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "gptj"
    scenario = "Server"
