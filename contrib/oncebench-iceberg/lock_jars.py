"""Writes the lock file of the jars of the REST catalog that the suite starts.

    python contrib/oncebench-iceberg/lock_jars.py      # in the project's folder

Needs Maven Central. Run it by hand to change a version, and review the diff.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.maven_lock import Bundle, write_locks

# Iceberg's own REST catalog, with which Iceberg tests its clients, is in iceberg-core's jar of tests. The others are
# what it loads, from the JVM's class log. PySpark ships the rest: Hadoop, Jackson, log4j and the servlet API.
_JARS = (
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "dev.failsafe:failsafe:3.3.2",  # only for an object store, as iceberg-aws
    "org.apache.httpcomponents.client5:httpclient5:5.6.1",
    "org.apache.httpcomponents.core5:httpcore5:5.4",
    "org.apache.iceberg:iceberg-api iceberg-aws iceberg-bundled-guava iceberg-common iceberg-core:1.11.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.14",
    "org.eclipse.jetty:jetty-http jetty-io jetty-security jetty-server jetty-session jetty-util jetty-xml:12.1.14",
    "org.xerial:sqlite-jdbc:3.54.1.0",
)
BUNDLES = {
    "iceberg-rest-server": Bundle(
        (
            "org.apache.iceberg:iceberg-core:jar:tests:1.11.0",
            *(
                f"{group}:{name}:{version}"
                for group, names, version in (each.split(":") for each in _JARS)
                for name in names.split()
            ),
        ),
        for_spark=False,
        alone=True,
    ),
}

if __name__ == "__main__":
    write_locks(BUNDLES, Path(__file__).parent / "oncebench_iceberg" / "locks")
