"""A REST catalog, as Polaris, Lakekeeper, Nessie, Gravitino and others serve it.

The address and the warehouse's name are parts of the place's text. pyiceberg's own configuration of the catalog
`default` gives the rest, secrets too: the file `.pyiceberg.yaml`, or variables of the environment.

    PYICEBERG_CATALOG__DEFAULT__TOKEN=...          a token
    PYICEBERG_CATALOG__DEFAULT__CREDENTIAL=id:key  a login that pyiceberg exchanges for tokens (OAuth2)

Promise: no secret is in a place, in its text or in a message. Each request ends within READ_S, also one for a token of
OAuth2. Logins by Google and Entra have the time-outs of their own libraries.

What can go wrong: the catalog does not answer (`requests.RequestException`), or refuses (`RESTError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from urllib.request import getproxies_environment

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config
from requests import Response, Session

from oncebench.delivery.errors import RefusedStart
from oncebench_iceberg.catalogs.local import CATALOG_NAME, is_table, without_login
from oncebench_iceberg.catalogs.login import Login

SCHEMES = ("http", "https")
# A catalog on the other side of the world accepts a connection within a second.
CONNECT_S = 10.0
# A commit with thousands of snapshots takes seconds. pyiceberg itself waits for ever.
READ_S = 30.0
TIMES = (CONNECT_S, READ_S)
# A load takes the catalog some ms of computing, so a reader does not ask as often as it looks at a file.
POLL_S = 0.05
# The suite's own catalog, or one that the user runs for a test.
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_FORM = "https://HOST:PORT/PATH/NAMESPACE.TABLE?warehouse=NAME"


@dataclass(frozen=True)
class RestPlace:
    """Names a table of a REST catalog. See `Place`.

    Attributes:
        uri: of the catalog, without `/v1`.
        table: `namespace.table`.
        warehouse: the catalog's name for a warehouse; empty: the catalog has one only.
    """

    uri: str
    table: str
    warehouse: str = ""

    @staticmethod
    def of(text: str) -> RestPlace:
        """Returns the place of a text, see `_FORM`.

        Raises:
            RefusedStart: the text has another form, or a login.
        """
        parts = urlsplit(text)
        if "@" in parts.netloc:
            host = parts.netloc.rpartition("@")[2]
            raise RefusedStart(
                f"the address of the REST catalog at {host} has a login in it, which logs would show. Set "
                "PYICEBERG_CATALOG__DEFAULT__TOKEN or PYICEBERG_CATALOG__DEFAULT__CREDENTIAL instead."
            )
        path, _, table = parts.path.rpartition("/")
        options = parse_qs(parts.query, keep_blank_values=True)
        warehouse = options.pop("warehouse", [""])
        if not parts.netloc or not is_table(table) or options or len(warehouse) != 1 or parts.fragment:
            where = without_login(f"{parts.scheme}://{parts.netloc}{parts.path}")  # other options may be secrets
            raise RefusedStart(f"{where} names no table of a REST catalog. Name the table as {_FORM}.")
        return RestPlace(f"{parts.scheme}://{parts.netloc}{path}", table, warehouse[0])

    @property
    def text(self) -> str:
        """The text that `of` takes."""
        options = f"?{urlencode({'warehouse': self.warehouse}, quote_via=quote)}" if self.warehouse else ""
        return f"{self.uri.rstrip('/')}/{self.table}{options}"

    @property
    def remedy(self) -> str:
        return (
            "Look at the REST catalog's log, mend it, then start again; or take a new checkpoint, sink_id and output."
        )

    def there(self) -> bool:
        return True

    def prepare(self) -> None:
        """See `Place`: the catalog's owner makes its warehouse."""

    def open(self) -> RestCatalog:
        """Opens the catalog. Sends requests: the login, and one for the catalog's settings."""
        ours = {"uri": self.uri, "type": "rest"} | ({"warehouse": self.warehouse} if self.warehouse else {})
        return _TimedCatalog(CATALOG_NAME, **merge_config({**settings()}, {**ours}))

    @property
    def made_with(self) -> Mapping[str, str]:
        """See `Place`: the catalog has its own defaults."""
        return {}

    @property
    def poll_s(self) -> float:
        return POLL_S

    def unchanged(self, seen: str) -> bool:
        """See `Place`: pyiceberg has no request that is cheaper than a load."""
        del seen
        return False

    def __str__(self) -> str:
        return f"{self.table} in {self.uri}" + (f" (warehouse {self.warehouse})" if self.warehouse else "")


def settings() -> Mapping[str, Any]:
    """Returns pyiceberg's own configuration of the catalog. There may be secrets in it."""
    return Config().get_catalog_config(CATALOG_NAME) or {}


def _no_proxy() -> str:
    """Returns the hosts to which requests go directly.

    They are the user's own, and this machine, which a proxy does not reach.
    """
    own = getproxies_environment().get("no", "").strip()
    return own if own == "*" else ",".join((*own.split(","), *_THIS_MACHINE)).lstrip(",")


class _TimedCatalog(RestCatalog):  # type: ignore[misc]  # mypy sees no types of pyiceberg
    """A REST catalog whose requests end, and go past a proxy if it is on this machine."""

    def _config_headers(self, session: Session) -> None:
        # pyiceberg calls this first with each new session, also before it logs in.
        send = session.request

        def request(*words: Any, **options: Any) -> Response:
            # A dict for each request: requests adds the proxies of the environment to it.
            return send(*words, **{"timeout": TIMES, "proxies": {"no_proxy": _no_proxy()}, **options})

        session.request = request  # type: ignore[method-assign]
        super()._config_headers(session)

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        session.auth = Login(self._auth_manager, TIMES)
        return session
