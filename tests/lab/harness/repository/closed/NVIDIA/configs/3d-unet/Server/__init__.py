from configs.configuration import *


class ServerGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "3d-unet"
    scenario = "Server"
