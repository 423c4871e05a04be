from configs.configuration import *


class SingleStreamGPUBaseConfig(BenchmarkConfiguration):
    benchmark = "3d-unet"
    scenario = "SingleStream"
