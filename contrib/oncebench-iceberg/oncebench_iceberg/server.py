"""A REST catalog: a server of our own, or the user's own.

Our server is Iceberg's reference catalog (1.11.0), with which Iceberg tests its own clients: one JVM, its catalog in an
SQLite file, its warehouse a local folder or a folder of an object store (`oncebench_iceberg.rest_server.warehouse`). It
listens on 127.0.0.1 only and checks no login.

Promise: while the service is open, ONCEBENCH_ICEBERG_REST has the catalog's address for this process and its children.
If the user has set it, that catalog is used, and never started or stopped. Our server answers when `start_rest_catalog`
returns, and keeps its tables if it is killed and started again.

Failure modes: our server does not start (`UserError` with the end of its log), or the user's cannot be used
(`MissingEnvironment`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from xml.sax.saxutils import escape

import pyspark

from oncebench.delivery.errors import PipelineError
from oncebench.disk_errors import disk_errors
from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import child
from oncebench.processes.child import Child, tail
from oncebench.processes.language import in_english
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.pages import page
from oncebench.servers.service import Service
from oncebench_iceberg.catalogs.configuration import import_pyiceberg
from oncebench_iceberg.rest_server.warehouse import Warehouse, warehouse_of
from oncebench_iceberg.sink import REST_SERVICE, VARIABLE

BUNDLE = "iceberg-rest-server"
# Each run makes a table in this namespace; the table's name only completes the address.
_TABLE = "oncebench.rows"
_START_LIMIT_S = 120.0  # 3 s on an idle machine, and many times longer while Spark uses every core
_STOP_LIMIT_S = 20.0
_POLL_S = 0.1
_ANSWER_S = 10.0
_STARTS = 3  # another process may take a free port before the server does
_TAKEN = ("Address already in use", "Failed to bind")
# Jetty starts what an XML file describes, so the server needs no Java code of ours.
_MAIN = "org.eclipse.jetty.xml.XmlConfiguration"
_FLAGS = (
    "-Xmx512m",  # a table's metadata takes some MB
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:TieredStopAtLevel=1",  # as for the Kafka broker: runs are short
    "-Djava.awt.headless=true",
)
_XML = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector"><Arg>
    <New class="org.eclipse.jetty.server.ServerConnector">
      <Arg name="server"><Ref refid="Server"/></Arg>
      <Set name="host">{host}</Set>
      <Set name="port">{port}</Set>
    </New>
  </Arg></Call>
  <Call id="Catalog" class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
    <Arg>oncebench</Arg>
    <Arg><Map>
      <Entry><Item>catalog-impl</Item><Item>org.apache.iceberg.jdbc.JdbcCatalog</Item></Entry>
      <Entry><Item>jdbc.schema-version</Item><Item>V1</Item></Entry>
      <Entry><Item>uri</Item><Item>jdbc:sqlite:{catalog}</Item></Entry>
{settings}
    </Map></Arg>
    <Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg>
  </Call>
  <Set name="handler"><New class="org.eclipse.jetty.ee10.servlet.ServletContextHandler">
    <Call name="addServlet">
      <Arg><New class="org.eclipse.jetty.ee10.servlet.ServletHolder"><Arg>
        <New class="org.apache.iceberg.rest.RESTCatalogServlet"><Arg>
          <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="Catalog"/></Arg></New>
        </Arg></New>
      </Arg></New></Arg>
      <Arg>/*</Arg>
    </Call>
  </New></Set>
</Configure>
"""


class RestCatalogServer:
    """A catalog that the suite started, with its files in `folder`.

    `start_rest_catalog` makes it.
    """

    def __init__(self, folder: Path, log: Path, java: Java, warehouse: Warehouse) -> None:
        self.log, self._warehouse = log, warehouse
        self._folder, self._java = folder.absolute(), java
        self._child: Child | None = None
        self.port = 0

    @property
    def uri(self) -> str:
        """As pyiceberg takes it."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        """As ONCEBENCH_ICEBERG_REST has it."""
        return f"{self.uri}/{_TABLE}"

    @property
    def pid(self) -> int:
        """Pid of the JVM; `UserError` if it does not run."""
        return child.running(self._child, "the REST catalog", self.log).pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Starts the catalog and returns when it answers.

        A further start uses the same port again. Raises `UserError` if the catalog does not start.
        """
        again = bool(self.port)
        for attempt in range(1, _STARTS + 1):
            if not again:
                (self.port,) = free_ports(1)
            offset = self.log.stat().st_size if self.log.exists() else 0
            environment = {**in_english(), **self._warehouse.environment}
            self._child = child.start("the REST catalog", self._command(), self.log, env=environment, cwd=self._folder)
            failure = self._wait()
            if not failure:
                return
            self.kill()
            output = tail(self.log, offset)
            if again or attempt == _STARTS or not any(text in output for text in _TAKEN):
                raise UserError(f"the REST catalog did not start ({failure}); the end of {self.log}:\n{output}")

    def kill(self) -> None:
        """SIGKILL. Returns when the process is gone."""
        if self._child is not None:
            self._child.kill_session()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if that takes too long."""
        if self._child is not None:
            self._child.stop_gently(_STOP_LIMIT_S)

    def _command(self) -> list[str]:
        settings = self._folder / "server.xml"
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            entries = "\n".join(
                f"      <Entry><Item>{name}</Item><Item>{escape(value)}</Item></Entry>"
                for name, value in self._warehouse.settings.items()
            )
            catalog = escape(str(self._folder / "catalog.sqlite"))
            settings.write_text(_XML.format(host=LOOPBACK, port=self.port, catalog=catalog, settings=entries), "utf-8")
        shipped = Path(pyspark.__file__).parent / "jars" / "*"
        found = [jar for bundle in (BUNDLE, *self._warehouse.bundles) for jar in jars(bundle)]
        class_path = os.pathsep.join(map(str, (*found, shipped)))
        return [str(self._java.executable), *_FLAGS, "-cp", class_path, _MAIN, str(settings)]

    def _wait(self) -> str:
        """Waits until it answers. Returns the failure, or ''."""
        assert self._child is not None, "start() has just started it"
        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            failure = _failure(self.uri)
            if not failure:
                return ""
            if not self._child.alive:
                return "it ended while starting"
            if time.monotonic() > deadline:
                return f"not within {_START_LIMIT_S:g} s: {failure}"
            time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _failure(uri: str) -> str:
    """Returns why a catalog at 127.0.0.1 does not answer, or ''."""
    try:
        page(f"{uri}/v1/config", _ANSWER_S)
    except OSError as error:  # urllib.error.URLError is one
        return str(error)
    return ""


@contextmanager
def start_rest_catalog(folder: Path, java: Java | None = None) -> Iterator[RestCatalogServer]:
    """A catalog with its files in ``folder/iceberg-rest`` and its log in ``folder/logs``."""
    files, log = (folder / REST_SERVICE).absolute(), folder / "logs" / f"{REST_SERVICE}.log"
    with RestCatalogServer(files, log, java or find_java(), warehouse_of(os.environ, files)) as server:
        server.start()
        yield server


def check_reachable(address: str) -> None:
    """Raises `MissingEnvironment` if no catalog answers at the address."""
    try:
        import_pyiceberg()
        from oncebench_iceberg.catalogs.errors import start_without_loss  # noqa: PLC0415
        from oncebench_iceberg.catalogs.rest import RestPlace  # noqa: PLC0415

        place = RestPlace.of(address)
        with start_without_loss(place):
            place.open().close()
    except PipelineError as error:
        raise MissingEnvironment(
            f"{VARIABLE}: {error} Without {VARIABLE} the suite starts a catalog of its own"
        ) from error


SERVICES = (Service(REST_SERVICE, VARIABLE, check_reachable, str, start_rest_catalog, lambda server: server.address),)
