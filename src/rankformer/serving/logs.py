"""What the service logs to stderr: lines for people, or one JSON object per line for programs."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """How the lines of the service's log are written."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object: time, level, process and message, and of a request its id and outcome."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "request", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(log_format: LogFormat) -> None:
    """Let the service and its server log to stderr, and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    as_text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else as_text)
    for name in ("rankformer.serving", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
