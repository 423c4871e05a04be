"""Convert a GPU's readings to metrics, and judge what they mean for a result: pure functions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from actions.monitors.coverage import is_enough, share, with_coverage
from actions.monitors.history import Total
from agent.core.records import MetadataValue, Metric, Relativity
from agent.facts.nvml_library import CLOCK_EVENTS
from parsers.nvidia_smi.readings import READINGS, UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actions.monitors.history import History
    from agent.facts.nvml_library import NvmlGpu

_READINGS = {reading.name: reading for reading in READINGS}
_RATES = {
    "nvlink_transmitted": "over all of its links",
    "nvlink_received": "over all of its links",
    "pcie_transmitted": "",
    "pcie_received": "",
    "xgmi_transmitted": "over all of its links",
    "xgmi_received": "over all of its links",
    "pcie_bandwidth": "in both directions",
}
_COUNTS = ("nvlink_crc_errors", "nvlink_replay_errors", "nvlink_recovery_errors")
_TOLD_AGAIN = timedelta(minutes=1)
_OFTEN = 2
_SELDOM = 3
POWER = ("power_draw_instant", "power_draw_average")
LOST_CLOCK = 0.03
"""Smallest share of its clock lost to the power limit, over all of the time, that is reported."""
_SUMMED_UP = (
    "utilization",
    "memory_utilization",
    "memory_used",
    *POWER,
    "temperature",
    "memory_temperature",
    "sm_clock",
    *_RATES,
)
_HEADLINES = frozenset(
    {
        "utilization",
        "memory_used",
        "power_draw_instant",
        "power_draw_average",
        "temperature",
        "sm_clock",
        "nvlink_transmitted",
        "nvlink_received",
        "xgmi_transmitted",
        "xgmi_received",
    }
)
"""Metrics that are written each time, and plotted in the report."""

SPOILING: Mapping[str, tuple[float, str]] = {
    "sw_power_cap": (0.05, "the power limit"),
    "sw_thermal_slowdown": (0.01, "the driver, because it or its memory is hot"),
    "hw_thermal_slowdown": (0.01, "the hardware, because it is too hot"),
    "hw_power_brake_slowdown": (0.01, "the power brake: the host's power supply asked for it"),
    "hw_slowdown": (0.01, "the hardware (hw_slowdown)"),
}
"""Clock events that reduce a result: the share of the time from which they count, and their cause."""
_NEVER = 2.0
_PARTS_OF_HW_SLOWDOWN = frozenset({"hw_thermal_slowdown", "hw_power_brake_slowdown"})


class GpuMetrics:
    """Creates the metrics of one GPU; constant parts are created once.

    Args:
        gpu: the GPU.
        driver: the driver's version.
    """

    def __init__(self, gpu: NvmlGpu, driver: str) -> None:
        self.gpu = gpu
        known: dict[str, MetadataValue] = {
            "gpu_index": gpu.index,
            "gpu_name": gpu.name,
            "gpu_pci_bus_id": gpu.bus_id,
        }
        self._metadata = {name: value for name, value in known.items() if value != ""}
        self._metadata |= {"gpu_uuid": gpu.uuid, "gpu_driver_version": driver}
        self._told: dict[str, tuple[float, datetime]] = {}
        self._kinds: dict[str, tuple[str, str, Relativity, str, int, dict[str, MetadataValue]]] = {}

    def gauges(self, values: Mapping[str, float], moment: datetime) -> list[Metric]:
        """Return states, and rates by their counters' names, as metrics; slow ones only if they changed."""
        return [
            self._metric(name, value, moment)
            for name, value in values.items()
            if name in _HEADLINES or self._is_news(name, value, moment)
        ]

    def _is_news(self, name: str, value: float, moment: datetime) -> bool:
        before = self._told.get(name)
        if before and before[0] == value and moment - before[1] < _TOLD_AGAIN:
            return False
        self._told[name] = (value, moment)
        return True

    def clock_events(self, before: int, after: int) -> list[Metric]:
        """Return the clock events that began (1) and ended (0)."""
        changed = before ^ after
        return [
            self._named(f"clock_event_{name}", float(bool(after & bit)), "ratio", "1 from now on, 0 no more")
            for bit, name in CLOCK_EVENTS.items()
            if changed & bit
        ]

    def event(
        self, name: str, value: float, unit: str, description: str, **metadata: MetadataValue
    ) -> Metric:
        """Return a metric for an event of the GPU."""
        return self._named(name, value, unit, description, metadata, relativity=Relativity.LOWER)

    def _metric(self, name: str, value: float, moment: datetime) -> Metric:
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = self._kind(name)
        full_name, unit, relativity, description, verbosity, metadata = kind
        return Metric(
            full_name, float(value), unit, relativity, description, verbosity, (), metadata, None, moment
        )

    def _kind(self, name: str) -> tuple[str, str, Relativity, str, int, dict[str, MetadataValue]]:
        prefix = f"gpu{self.gpu.index}_"
        often = name in _HEADLINES
        verbosity = _OFTEN if often else _SELDOM
        # Frequent metrics only identify the GPU; the other metadata is on the rare ones.
        metadata: dict[str, MetadataValue] = {"gpu_index": self.gpu.index} if often else self._metadata
        if name in _RATES:
            text = " ".join(filter(None, (f"GPU {self.gpu.index}: {name.replace('_', ' ')}", _RATES[name])))
            return f"{prefix}{name}", "bytes/s", Relativity.UNDEFINED, text, verbosity, metadata
        if name in _COUNTS:
            text = f"GPU {self.gpu.index}: {name.replace('_', ' ')}"
            return f"{prefix}{name}", "count", Relativity.LOWER, text, verbosity, metadata
        reading = _READINGS[name]
        unit, _ = UNITS.get(reading.unit, (reading.unit, 1.0))
        alias = {"virtualclient_name": f"{prefix}{reading.virtualclient}"} if reading.virtualclient else {}
        return (
            f"{prefix}{name}",
            unit,
            reading.relativity,
            f"GPU {self.gpu.index}: {name.replace('_', ' ')}",
            verbosity,
            {**metadata, **alias},
        )

    def _named(
        self,
        name: str,
        value: float,
        unit: str,
        description: str,
        metadata: Mapping[str, MetadataValue] | None = None,
        *,
        relativity: Relativity = Relativity.UNDEFINED,
        verbosity: int = _SELDOM,
    ) -> Metric:
        return Metric(
            f"gpu{self.gpu.index}_{name}",
            float(value),
            unit,
            relativity,
            f"GPU {self.gpu.index}: {description}",
            verbosity,
            (),
            {**self._metadata, **(metadata or {})},
        )

    def summary(self, history: History, start_s: float, end_s: float) -> list[Metric]:
        """Return means and maxima over a time span, the energy, and the shares of clock events.

        The metadata of each contains the covered share of the span. Means and sums that cover less than half
        of it are omitted.
        """
        metrics = []
        for name in _SUMMED_UP:
            found = history.statistic(column(self.gpu, name), start_s, end_s, is_counted=name in _RATES)
            if found is None:
                continue
            seen = share(found.covered_s, start_s, end_s)
            _, unit, relativity, *_ = self._kinds.setdefault(name, self._kind(name))
            verbosity = _OFTEN if name in _HEADLINES else _SELDOM
            words = name.replace("_", " ")
            values = {"max": (found.maximum, "highest")}
            if name not in POWER and is_enough(seen):  # the mean of power comes from the energy
                values = {"mean": (found.mean, "mean"), **values}
            for suffix, (value, what) in values.items():
                metric = self._named(
                    f"{name}_{suffix}",
                    value,
                    unit,
                    f"{what} {words} while it ran",
                    relativity=relativity,
                    verbosity=verbosity,
                )
                metrics.append(with_coverage(metric, seen))
        energy = history.total(column(self.gpu, "energy"), start_s, end_s)
        if energy is not None and is_enough(seen := share(energy.covered_s, start_s, end_s)):
            metrics += [with_coverage(metric, seen) for metric in self._energy(energy)]
        shares = history.bits(column(self.gpu, "clock_events"), start_s, end_s)
        metrics += [
            self._named(f"clock_event_{CLOCK_EVENTS[bit]}", part, "ratio", "share of the time")
            for bit, part in shares.items()
            if bit in CLOCK_EVENTS
        ]
        return metrics

    def _energy(self, energy: Total) -> list[Metric]:
        """Return the energy, and the mean power computed from it."""
        lower = Relativity.LOWER
        return [
            self._named(
                "energy", energy.value, "joules", "energy while it ran", relativity=lower, verbosity=_OFTEN
            ),
            self._named(
                "power_mean",
                energy.value / energy.covered_s,
                "watts",
                "energy by the seconds in which it was measured",
                relativity=lower,
                verbosity=_OFTEN,
            ),
        ]


def column(gpu: NvmlGpu, name: str) -> str:
    """Return the name of a GPU's value in the history."""
    return f"{gpu.index} {name}"


def span_metrics(gpus: Iterable[NvmlGpu], history: History, start_s: float, end_s: float) -> list[Metric]:
    """Return metrics of all GPUs together: mean utilisation of the covered ones, total energy."""
    gpus = list(gpus)
    busy = [
        found
        for gpu in gpus
        if (found := history.statistic(column(gpu, "utilization"), start_s, end_s)) is not None
        and is_enough(share(found.covered_s, start_s, end_s))
    ]
    columns = set(history.names())
    measured = {name.partition(" ")[0] for name in columns}
    energies = [
        history.total(column(gpu, "energy"), start_s, end_s) or Total(0.0, 0.0)
        for gpu in gpus
        # A GPU that only lacks the energy does not have a sensor for it.
        if column(gpu, "energy") in columns or str(gpu.index) not in measured
    ]
    metrics = []
    if busy:
        text = f"mean of {len(busy)} GPUs while it ran"
        mean = sum(found.mean for found in busy) / len(busy)
        metric = Metric("gpu_utilization_mean", mean, "ratio", description=text, verbosity=2)
        metrics.append(with_coverage(metric, share(min(found.covered_s for found in busy), start_s, end_s)))
    least = share(min((joules.covered_s for joules in energies), default=0.0), start_s, end_s)
    if energies and is_enough(least):  # the total needs the energy of every GPU
        text = f"energy of {len(energies)} GPUs while it ran"
        whole = sum(energy.value for energy in energies)
        metric = Metric("gpu_energy", whole, "joules", Relativity.LOWER, description=text, verbosity=2)
        metrics.append(with_coverage(metric, least))
    return metrics


def clock_warnings(
    gpus: Iterable[NvmlGpu],
    limits_watts: Mapping[int, float],
    history: History,
    start_s: float,
    end_s: float,
    *,
    advice: str,
) -> list[str]:
    """Return warnings about clocks reduced for so long that a result is affected; GPUs grouped by cause.

    Args:
        gpus: the GPUs.
        limits_watts: power limits by index, if known.
        history: the measurements.
        start_s: the span's start.
        end_s: its end.
        advice: the remedy for reduced clocks, if the cause implies none.
    """
    found: dict[str, list[tuple[int, float, str]]] = {}
    for gpu in gpus:
        bits = history.bits(column(gpu, "clock_events"), start_s, end_s)
        shares = {CLOCK_EVENTS[bit]: part for bit, part in bits.items() if bit in CLOCK_EVENTS}
        for bit, reason in CLOCK_EVENTS.items():
            least, _ = SPOILING.get(reason, (_NEVER, ""))
            explained = reason == "hw_slowdown" and not _PARTS_OF_HW_SLOWDOWN.isdisjoint(shares)
            if shares.get(reason, 0.0) < least or explained:
                continue
            remedy = ""
            if reason == "sw_power_cap":
                clock = history.mean_while(
                    column(gpu, "sm_clock"), bit, column(gpu, "clock_events"), start_s, end_s
                )
                most = gpu.max_sm_clock_hertz
                if clock and most and shares[reason] * (1 - clock / most) < LOST_CLOCK:
                    continue  # the limit is reached, but hardly any clock is lost
                at = f"at {clock / 1e6:.0f} of {most / 1e6:.0f} MHz; " if clock and most else ""
                remedy = at + _power_remedy(gpu, limits_watts.get(gpu.index))
            found.setdefault(reason, []).append((gpu.index, shares[reason], remedy))
    return [_clock_warning(reason, gpus_of, advice) for reason, gpus_of in found.items()]


def _clock_warning(reason: str, gpus: list[tuple[int, float, str]], advice: str) -> str:
    most = max(share for _, share, _ in gpus)
    names = ", ".join(str(index) for index, _, _ in gpus)
    remedies = dict.fromkeys(remedy for _, _, remedy in gpus if remedy)
    remedy = "; ".join(remedies) or advice
    share = f"{most:.0%}" if len(gpus) == 1 else f"up to {most:.0%}"
    return (
        f"the clocks of GPU {names} were held down by {SPOILING[reason][1]} for {share} of the time "
        f"({reason}): {remedy}"
    )


def _power_remedy(gpu: NvmlGpu, limit_watts: float | None) -> str:
    default_watts = gpu.default_power_limit_watts
    if limit_watts is None:
        return "the figure is that of its power limit"
    if default_watts is not None and limit_watts < default_watts:
        return (
            f"its limit is set to {limit_watts:g} W, it was delivered with {default_watts:g} W "
            f"(nvidia-smi --power-limit={default_watts:g})"
        )
    return f"the figure is what it does within its {limit_watts:g} W"
