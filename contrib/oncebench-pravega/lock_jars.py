"""Writes the lock file of the jars of Pravega's server.

    python contrib/oncebench-pravega/lock_jars.py      # in the project's folder

Needs Maven Central. Run it by hand to change a version, and review the diff.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.maven_lock import Bundle, write_locks

# The jars that Pravega's server loads with its data in memory, from the JVM's class log: 53 of the 246 dependencies of
# pravega-standalone. The others serve HDFS, S3, Azure and REST, and conflict with each other.
_JARS = (
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
    "pravega-server": Bundle(
        tuple(
            f"{group}:{name}:{version}"
            for group, names, version in (each.split(":") for each in _JARS)
            for name in names.split()
        ),
        for_spark=False,
        alone=True,
    ),
}

if __name__ == "__main__":
    write_locks(BUNDLES, Path(__file__).parent / "oncebench_pravega" / "locks")
