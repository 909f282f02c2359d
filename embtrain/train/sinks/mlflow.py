"""MLflow sink: a run of the experiment `embtrain`, with the settings as parameters and the log's numbers as metrics.

The store is the one that MLFLOW_TRACKING_URI names. By default it is mlflow.db, an SQLite file in the store folder of
the run (base.py), shared by all runs there: `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`. RUN/mlflow.json
stores the id by which a resumed run continues its stream. A number that is sent again has the same time, step and
value, and MLflow's stores keep it once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from embtrain.common.errors import ResourceError
from embtrain.common.files import create_once, read_json, write_json
from embtrain.common.types import Score
from embtrain.train.sinks.base import LogLine, Sink, final_values, store_folder

EXPERIMENT = "embtrain"
FILE = "mlflow.json"            # in the folder of the run
_SQLITE = "sqlite:///"          # followed by a quoted path or one of SQLite's own URIs, and by options after "?"
MAX_METRICS = 500             # per request; MLflow accepts 1,000
MAX_PARAMS = 100
MAX_PARAM_LENGTH = 500          # characters; every store accepts so many


class MLflow(Sink):
    """Sends the log to an MLflow store."""

    name = "mlflow"
    needs: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy", "alembic")

    def __init__(self, folder: Path, settings: Mapping[str, str], started: float):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # do not report usage to MLflow
        default, uri = store_folder(folder) / "mlflow.db", os.environ.get("MLFLOW_TRACKING_URI")
        self.started, self.store = started, "MLFLOW_TRACKING_URI" if uri else str(default)
        with self._translating_errors():
            self.client = _open(uri or _sqlite_uri(default))
            self.run, params = self._stored_run(folder / FILE) or (self._new_run(folder), {})
            try:                        # nothing else closes a sink that does not start
                write_json(folder / FILE, {"run_id": self.run})
                self.client.update_run(self.run, "RUNNING")
                self._send_params({key: value for key, value in settings.items() if key not in params})
            except BaseException:
                with contextlib.suppress(ResourceError):
                    self.close(done=False)
                raise

    def write(self, lines: Sequence[LogLine]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(_metric_name(key), value, round(1000 * (self.started + line.seconds)), line.step)
                   for line in lines for key, value in line.values.items()]
        with self._translating_errors():
            for first in range(0, len(metrics), MAX_METRICS):
                self.client.log_batch(self.run, metrics=metrics[first:first + MAX_METRICS])

    def write_scores(self, last: LogLine, scores: Sequence[Score]) -> None:
        self.write([last._replace(values=final_values(scores))])

    def close(self, done: bool) -> None:
        with self._translating_errors():
            self.client.set_terminated(self.run, "FINISHED" if done else "KILLED")

    def _new_run(self, folder: Path) -> str:
        """The id of a new run."""
        from mlflow.exceptions import MlflowException

        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            with contextlib.suppress(MlflowException):  # another run creates it right now
                self.client.create_experiment(EXPERIMENT)
            experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            raise ResourceError(f"train.sinks: mlflow: its store has no experiment {EXPERIMENT!r} and rejects new ones")
        return str(self.client.create_run(
            experiment.experiment_id, start_time=round(1000 * self.started), run_name=folder.name
        ).info.run_id)

    def _send_params(self, settings: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = [Param(key, value[:MAX_PARAM_LENGTH]) for key, value in settings.items()]
        for first in range(0, len(params), MAX_PARAMS):
            self.client.log_batch(self.run, params=params[first:first + MAX_PARAMS])

    def _stored_run(self, path: Path) -> tuple[str, Mapping[str, str]] | None:
        """The id in `path` and the parameters of its run; None if the store does not have that, or only as deleted."""
        from mlflow.exceptions import MlflowException

        try:
            run = self.client.get_run(str(read_json(path)["run_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise  # a server that does not answer must not split the stream
            return None
        return (str(run.info.run_id), run.data.params) if run.info.lifecycle_stage == "active" else None

    @contextlib.contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Turn errors into ResourceError: MLflow also raises those of its database, its server and missing drivers."""
        try:
            yield
        except ResourceError:
            raise
        except Exception as error:
            text = " ".join(str(_database_error(error)).split())[:300] or type(error).__name__
            raise ResourceError(f"train.sinks: mlflow: {self.store}: {text}; set MLFLOW_TRACKING_URI to a store that "
                                "can be written, or leave mlflow out") from error


def _open(uri: str) -> Any:
    """A client of a store. An SQLite file is created whole: MLflow's migrations of a new one must not be cut off."""
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it logs each new table, and errors before it raises them
    name = _database(uri) if uri.startswith(_SQLITE) else ""
    if name not in ("", ":memory:") and not name.startswith("file:"):
        path = create_once(Path(name), lambda new: MlflowClient(tracking_uri=_sqlite_uri(new)))
        # SQLite writes its journal next to the file. Without this check MLflow would try again for minutes.
        if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
            raise PermissionError("no permission to read it, or to write it and its folder")
    return MlflowClient(tracking_uri=uri)


def _sqlite_uri(path: Path) -> str:
    """The URI of an SQLite file, quoted as the installed SQLAlchemy reads it; ResourceError if it cannot read it."""
    from sqlalchemy.engine import URL

    uri = URL.create("sqlite", database=str(path)).render_as_string()
    if _database(uri) != str(path):          # SQLAlchemy 2.0 quotes no `?`, which begins the options
        raise ResourceError(f"train.sinks: mlflow: {path}: the installed SQLAlchemy cannot open a path with `?`; give "
                            "the run another folder with --out, or set MLFLOW_TRACKING_URI")
    return uri


def _database(uri: str) -> str:
    """The path of an SQLite URI, or one of SQLite's own; '' if there is none."""
    from sqlalchemy.engine import make_url

    return make_url(uri).database or ""


def _database_error(error: BaseException) -> BaseException:
    """The driver's error, which SQLAlchemy's wraps between notes and SQL; `error` itself if no database caused it."""
    cause: BaseException | None = error
    visited = set[int]()                                     # contexts can form a loop
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
        if isinstance(original := getattr(cause, "orig", None), BaseException):
            return original
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return error


def _metric_name(key: str) -> str:
    """hits@10 as hits_at_10: MLflow's names may contain only letters, digits, spaces and / _ - ."""
    return re.sub(r"[^\w/. -]", "_", key.replace("@", "_at_"))
