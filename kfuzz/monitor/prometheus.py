"""Counts of monitored functions for Prometheus, by the extra `prometheus`."""

from collections.abc import Iterable
from typing import Any

from kfuzz.core.errors import UsageError
from kfuzz.monitor.counts import NUMBERS
from kfuzz.monitor.runtime import runtime


class Collector:
    """Tells a registry of prometheus_client the counts at the time it asks."""

    def __init__(self, family: Any) -> None:
        """Take the class of metrics that counters are told as.

        Args:
            family: `prometheus_client.core.CounterMetricFamily`.
        """
        self._family = family

    def collect(self) -> Iterable[Any]:
        """Yield one counter per kind of count, labelled by function."""
        counts = runtime.statistics()
        for name in NUMBERS:
            what = f"calls that kfuzz.monitor counted as {name}"
            made = self._family(f"kfuzz_monitor_{name}", what, labels=["function"])
            for each in counts:
                made.add_metric([each.function], getattr(each, name))
            yield made


def register(registry: Any = None) -> Collector:
    """Have the counts collected by a registry, prometheus_client's own by default.

    Raises:
        UsageError: if prometheus_client is not installed.
    """
    try:
        from prometheus_client import REGISTRY
        from prometheus_client.core import CounterMetricFamily
    except ImportError:
        raise UsageError(
            "prometheus_client is not installed",
            where="kfuzz.monitor.prometheus",
            fix="pip install 'kfuzz[prometheus]'",
        ) from None
    collector = Collector(CounterMetricFamily)
    (REGISTRY if registry is None else registry).register(collector)
    return collector
