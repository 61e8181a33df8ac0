"""Counts of monitored functions for Prometheus, by the extra `prometheus`."""

from collections.abc import Iterable
from typing import Any

from kfuzz.core.errors import UsageError
from kfuzz.monitor.counts import NUMBERS
from kfuzz.monitor.runtime import runtime

_HELP = {
    "seen": "calls",
    "sampled": "calls chosen to be looked at",
    "new_signatures": "calls chosen for a signature not seen before",
    "outliers": "calls that a detector flagged",
    "dropped": "calls chosen while there was no buffer for their data",
    "skipped": "calls chosen whose data could not be copied",
    "outside": "calls that the contract does not cover",
    "raised": "calls chosen that raised",
    "checked": "calls judged",
    "undecided": "calls judged of which no element could be",
    "violations": "calls judged that broke their contract",
    "errors": "calls that a reference, a callback or the monitor failed on",
}


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
            what = f"kfuzz monitor: {_HELP[name]}"
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
