"""Keys of trackers of experiments: where a job's run is kept besides its own history."""

from __future__ import annotations

from tony_core.job.keys.key import Key, Kind

KEYS = [
    Key("tony.mlflow.tracking-uri", Kind.TEXT, fills="Mlflow.tracking_uri",
        doc="An MLflow server, as http://HOST:PORT or https://HOST: the job is a run there, and its"
            " programs' own calls of MLflow go to that run ([metrics.md](metrics.md)). By default"
            " the job is not tracked."),
    Key("tony.mlflow.experiment", Kind.TEXT, default="Default", fills="Mlflow.experiment",
        doc="The experiment of the run; made where there is none of that name."),
    Key("tony.mlflow.run-name", Kind.TEXT, fills="Mlflow.run_name",
        doc="The name of the run: by default that of the job."),
    Key("tony.mlflow.ca-file", Kind.PATH, part_of="Mlflow.ca_pem",
        doc="A file of this machine with certificates (PEM) of authorities that the master trusts"
            " beside its node's, for an https server."),
]  # fmt: skip
