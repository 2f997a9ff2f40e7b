"""Fetches and makes at once, ahead of the first run, all that it would need: afterwards no network is asked for."""

from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.lab.lab import spark_of
from oncebench.servers.kafka.class_archive import start_files
from oncebench.servers.sink_servers import needed_bundles


def provision() -> Java:
    """Find or fetch Java, fetch every jar, prepare what makes Kafka and Spark start fast; returns the Java.

    Raises `MissingEnvironment`.

    What is there already is only verified, in some ten milliseconds.
    """
    java = find_java()
    for bundle in needed_bundles():
        jars(bundle)
    start_files(java)
    spark_of(java)
    return java
