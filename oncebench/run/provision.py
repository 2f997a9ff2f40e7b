"""Fetches and makes at once, ahead of the first run, all that it would need: afterwards no network is asked for."""

from oncebench.run.lab import spark_of
from oncebench.services.beside import needed_bundles
from oncebench.services.broker_prepared import prepare
from oncebench.services.java import Java, find_java
from oncebench.services.maven import jars


def provision() -> Java:
    """Find or fetch Java, fetch every jar, prepare what makes Kafka and Spark start fast; returns the Java.

    Raises `MissingEnvironment`.

    What is there already is only verified, in some ten milliseconds.
    """
    java = find_java()
    for bundle in needed_bundles():
        jars(bundle)
    prepare(java)
    spark_of(java)
    return java
