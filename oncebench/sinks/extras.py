"""Names the extra that installs a missing package, for one line in place of a traceback.

A plain installation brings what the Kafka, files and SQLite sinks of a job need. The other packages are in extras.
"""

from __future__ import annotations

# The import name of a package -> the extra with it. The suite's extra has all others.
_EXTRAS = {
    "pyspark": "spark",
    "psycopg": "postgres",
    "deltalake": "delta",
    "prometheus_client": "metrics",
    "asv": "bench",
}
_SUITE = "lab"
_OURS = ("oncebench", "pipeline", "loadgen")


def how_to_install(error: ModuleNotFoundError) -> str | None:
    """Returns the missing package, and the command that installs it.

    Returns None if a module of this project is missing.
    """
    package = (error.name or "").partition(".")[0]
    if not package or package in _OURS:
        return None
    extra = _EXTRAS.get(package, _SUITE)
    return f"it needs the package {package}. Install it in your clone of oncebench: pip install '.[{extra}]'"
