"""Fetches and prepares everything that runs need, so that later runs need no network."""

from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.lab.lab import spark_of
from oncebench.servers.kafka.class_archive import start_files
from oncebench.servers.sink_servers import needed_bundles


def provision() -> Java:
    """Provides Java, every jar, and the class archives of Kafka and Spark; returns the Java.

    Files that exist are only verified, which takes some ten milliseconds.

    Raises:
        MissingEnvironment: a download failed, or there is no room for it.
    """
    java = find_java()
    for bundle in needed_bundles():
        jars(bundle)
    start_files(java)
    spark_of(java)
    return java
