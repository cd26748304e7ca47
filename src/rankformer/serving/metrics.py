"""What the service counts about itself, in Prometheus' text form; a registry of its own per application."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from starlette.responses import Response

from rankformer.serving.served_model import ServedModel

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Metrics:
    """The counters; label values come from routes and fixed words, never from what callers send."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rankformer_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "rankformer_request_seconds", "Time to the answer.", ("route",), buckets=_LATENCIES, registry=self.registry
        )
        self.in_flight = Gauge("rankformer_requests_in_flight", "Requests being answered.", registry=self.registry)
        self._unknown = Counter(
            "rankformer_unknown_ids", "Ids asked for that the model does not know.", ("kind",), registry=self.registry
        )
        self._rejected = Counter(
            "rankformer_rejections", "Requests turned away to be repeated later.", ("reason",), registry=self.registry
        )
        self._reloads = Counter("rankformer_reloads", "Attempts to load a model.", ("outcome",), registry=self.registry)
        self._batches = Histogram(
            "rankformer_batch_users", "Users answered together.", buckets=_BATCHES, registry=self.registry
        )
        self._waiting = Gauge("rankformer_queue_length", "Single users waiting to be answered.", registry=self.registry)
        self._model = Info("rankformer_model", "The model that answers.", registry=self.registry)
        self._age = Gauge("rankformer_model_age_seconds", "Time since the model was saved.", registry=self.registry)
        self._loaded = Gauge(
            "rankformer_model_loaded_timestamp_seconds", "When the model was loaded.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        for outcome in ("ok", "failed"):
            self._reloads.labels(outcome)
        for kind in ("user", "item"):
            self._unknown.labels(kind)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; `route` is a template such as /v1/recommend/{user}."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def unknown(self, kind: str, count: int = 1) -> None:
        """Count ids that the model does not know; `kind` is user or item."""
        self._unknown.labels(kind).inc(count)

    def rejected(self, reason: str) -> None:
        """Count a request that was turned away."""
        self._rejected.labels(reason).inc()

    def batched(self, users: int) -> None:
        """Count users that were answered together."""
        self._batches.observe(users)

    def watch_queue(self, length: Callable[[], float]) -> None:
        """Read the length of the queue whenever the metrics are asked for."""
        self._waiting.set_function(length)

    def loaded(self, model: ServedModel) -> None:
        """Note the model that answers from now on."""
        self._reloads.labels("ok").inc()
        self._model.info({"version": model.version, "method": model.run.model, "created": model.created})
        self._age.set_function(lambda: model.age)
        self._loaded.set(model.loaded)

    def load_failed(self) -> None:
        """Count an attempt that left everything as it was."""
        self._reloads.labels("failed").inc()

    def response(self) -> Response:
        """Return all of it as Prometheus reads it."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Cache-Control": "no-store"}
        return Response(generate_latest(self.registry), headers=headers)
