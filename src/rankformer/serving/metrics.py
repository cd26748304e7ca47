"""Prometheus metrics of the service, in a registry of their own per application."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from starlette.responses import Response

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Metrics:
    """The counters; label values come from routes and fixed words, never from what callers send."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "rankformer_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "rankformer_request_seconds", "Time to the answer.", ("route",), buckets=_LATENCIES, registry=registry
        )
        self.in_flight = Gauge("rankformer_requests_in_flight", "Requests being answered.", registry=registry)
        self.unknown_ids = Counter(
            "rankformer_unknown_ids", "Ids asked for that the model does not know.", ("kind",), registry=registry
        )
        self.rejections = Counter(
            "rankformer_rejections", "Requests rejected, to be repeated later.", ("reason",), registry=registry
        )
        self.reloads = Counter("rankformer_reloads", "Attempts to load a model.", ("outcome",), registry=registry)
        self.batch_users = Histogram(
            "rankformer_batch_users", "Users answered together.", buckets=_BATCHES, registry=registry
        )
        self.queue_length = Gauge("rankformer_queue_length", "Single users waiting to be answered.", registry=registry)
        self._model = Info("rankformer_model", "The model that answers.", registry=registry)
        self._age = Gauge("rankformer_model_age_seconds", "Time since the model was saved.", registry=registry)
        self._loaded = Gauge(
            "rankformer_model_loaded_timestamp_seconds", "When the model was loaded.", registry=registry
        )
        ProcessCollector(registry=registry)
        for outcome in ("ok", "failed"):
            self.reloads.labels(outcome)
        for kind in ("user", "item"):
            self.unknown_ids.labels(kind)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; `route` is a template such as /v1/recommend/{user}."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def set_model(self, version: str, method: str, created: str, loaded: float, age: Callable[[], float]) -> None:
        """Count a load and describe the model that answers from now on; `age` is read whenever metrics are."""
        self.reloads.labels("ok").inc()
        self._model.info({"version": version, "method": method, "created": created})
        self._age.set_function(age)
        self._loaded.set(loaded)

    def response(self) -> Response:
        """Return all metrics in Prometheus' text format."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Cache-Control": "no-store"}
        return Response(generate_latest(self.registry), headers=headers)
