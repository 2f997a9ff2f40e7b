"""Converts errors of pyiceberg's configuration.

pyiceberg reads `.pyiceberg.yaml` and its variables of the environment when it is imported, so an import may raise them.
"""

from __future__ import annotations

from oncebench.delivery.errors import RefusedStart


def import_pyiceberg() -> None:
    """Imports pyiceberg.

    Raises:
        RefusedStart: pyiceberg cannot read its configuration.
    """
    try:
        import pyiceberg.catalog  # noqa: PLC0415  it takes a second
    except _of_configuration() as error:
        raise RefusedStart(
            f"pyiceberg cannot read its configuration ({' '.join(str(error).split())}). Correct .pyiceberg.yaml, or "
            "the variables of the environment that begin with PYICEBERG_, then start again."
        ) from error
    assert pyiceberg.catalog


def _of_configuration() -> tuple[type[Exception], ...]:
    """Returns the errors that reading the file may raise.

    The function is called only after an error, because the import is slow.
    """
    from strictyaml import YAMLError  # noqa: PLC0415

    return YAMLError, ValueError, OSError
