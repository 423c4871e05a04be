from configs.configuration import *


class ServerGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "bert"
    scenario = "Server"
