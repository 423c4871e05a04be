/* A stand-in for libnvidia-ml.so.1, at the outermost edge: nvidia-ml-py loads it and asks it as it asks NVIDIA's.
 *
 * Signatures and return codes are those of nvml.h (NVML API reference). The GPUs and their state are a text file,
 * named by FAKE_NVML_STATE and read anew at each initialisation and each call of a GPU's utilisation or fields:
 *     gpus 8          number of GPUs
 *     events 4        clock event reasons of all GPUs
 *     gone 1          every call fails as it does when the driver is unloaded
 *     lost 3          GPU 3 has fallen off the bus (-1: none)
 *     old 1           fields and functions of newer drivers are missing
 *     ecc 2           uncorrected memory errors
 *     clock 1947      the SM clock, in MHz, of at most 1980
 *     watts 921       the power that all GPUs read (0: as below)
 *     time 1020000    the time in microseconds (-1: the monotonic clock's)
 * Power is 400 W + 10 W for each GPU; energy grows with the clock accordingly.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_DRIVER = 9, LOST = 15 };
typedef struct { unsigned int index; } Device;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } Memory;
typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, pci_id, subsystem;
    char bus_id[32];
} Pci;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, status;
    union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; } value;
} Field;

static Device devices[16];
static int gpus = 8, gone = 0, lost = -1, old = 0, ecc = 0, sm_clock = 1755, watts = 0, initialised = 0;
static unsigned long long events = 0;
static long long set_time = -1;
static double started;

static double now(void) {
    struct timespec t;
    if (set_time >= 0) return set_time / 1e6;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void look(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[16];
    long long value;
    if (!file) return;
    while (fscanf(file, "%15s %lld", name, &value) == 2) {
        if (!strcmp(name, "gpus")) gpus = (int)value;
        if (!strcmp(name, "events")) events = (unsigned long long)value;
        if (!strcmp(name, "gone")) gone = (int)value;
        if (!strcmp(name, "lost")) lost = (int)value;
        if (!strcmp(name, "old")) old = (int)value;
        if (!strcmp(name, "ecc")) ecc = (int)value;
        if (!strcmp(name, "clock")) sm_clock = (int)value;
        if (!strcmp(name, "watts")) watts = (int)value;
        if (!strcmp(name, "time")) set_time = value;
    }
    fclose(file);
}

static int check(Device *device) {
    if (gone) { initialised = 0; return NO_DRIVER; }
    if (!initialised) return UNINITIALIZED;
    return device && (int)device->index == lost ? LOST : OK;
}

#define ANSWER(device, statement) { int status = check(device); if (status == OK) { statement; } return status; }

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    look();
    if (gone) return NO_DRIVER;
    if (!initialised) started = now();
    initialised = 1;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { int was = initialised; initialised = 0; return was ? OK : UNINITIALIZED; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_DRIVER: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *text, unsigned int size) ANSWER(NULL, snprintf(text, size, "580.95.05"))
int nvmlDeviceGetCount_v2(unsigned int *count) ANSWER(NULL, *count = (unsigned int)gpus)
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device) {
    if ((int)index >= gpus) return INVALID;
    devices[index].index = index;
    ANSWER(NULL, *device = &devices[index])
}
int nvmlDeviceGetName(Device *device, char *text, unsigned int size)
    ANSWER(device, snprintf(text, size, "NVIDIA H100 80GB HBM3"))
int nvmlDeviceGetUUID(Device *device, char *text, unsigned int size)
    ANSWER(device, snprintf(text, size, "GPU-%08u-0000", device->index))
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci)
    ANSWER(device, snprintf(pci->bus_id, 32, "00000000:%02X:00.0", 0x10 + device->index))
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    look();
    ANSWER(device, rates->gpu = 97; rates->memory = 40)
}
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory *memory)
    ANSWER(device, memory->total = 85520809984ULL; memory->used = 70000000000ULL; memory->free = 15000000000ULL)
int nvmlDeviceGetTemperature(Device *device, unsigned int sensor, unsigned int *celsius)
    ANSWER(device, (void)sensor; *celsius = 61)
int nvmlDeviceGetClockInfo(Device *device, unsigned int kind, unsigned int *mhz)
    ANSWER(device, *mhz = kind == 2 ? 2619 : (unsigned int)sm_clock)
int nvmlDeviceGetMaxClockInfo(Device *device, unsigned int kind, unsigned int *mhz)
    ANSWER(device, *mhz = kind == 2 ? 2619 : 1980)
int nvmlDeviceGetPowerUsage(Device *device, unsigned int *milliwatts)
    ANSWER(device, *milliwatts = watts ? 1000 * (unsigned int)watts : 400000 + 10000 * device->index)
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned int *milliwatts) ANSWER(device, *milliwatts = 500000)
int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned int *milliwatts)
    ANSWER(device, *milliwatts = 700000)
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned int *value) ANSWER(device, *value = 5)
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned int *value) ANSWER(device, *value = 16)
int nvmlDeviceGetPcieThroughput(Device *device, unsigned int counter, unsigned int *kilobytes)
    ANSWER(device, *kilobytes = counter ? 2000 : 1000)
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *bits) ANSWER(device, *bits = events)

static void fill(Field *field, unsigned int index) {
    double seconds = now() - started;
    field->status = OK;
    field->type = 3;
    switch (field->field) {
    case 3: case 5: case 38: case 52: case 59: case 94: case 142: case 143: field->value.ull = 0; return;
    case 4: case 6: field->value.ull = (unsigned long long)ecc; return;
    case 82: field->type = 1; field->value.ui = 70; return;
    case 83: if (old) break; /* in steps of 0.1 s, as an H100's counter */
        field->value.ull = (unsigned long long)(floor(seconds * 10) / 10 * (400000 + 10000 * index)); return;
    case 138: case 139: if (field->scope != 0xFFFFFFFF) break;
        field->value.ull = (unsigned long long)(seconds * 1000000); return;
    case 186: if (old) break; field->type = 1;
        field->value.ui = watts ? 1000 * (unsigned int)watts : 400000 + 10000 * index; return;
    case 197: case 198: field->type = 1; field->value.ui = 1; return;
    }
    field->status = NOT_SUPPORTED;
}
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    look();
    ANSWER(device, for (int place = 0; place < count; place++) fill(&fields[place], device->index))
}
