"""Spark's settings for a checkpoint in an object store.

They choose Hadoop's S3A, and a manager of checkpoint files that fits it.

Spark's default manager writes a temporary file and renames it. An object store has no rename: S3A copies and deletes,
so a death in between leaves a copy without an end of the rename. The manager of Spark's `hadoop-cloud` module writes an
object that appears when it is closed, or never (`AbortableStreamBasedCheckpointFileManager`).

What can go wrong: this manager looks whether an entry of Spark's logs exists, and then writes it. A driver that sleeps
between the two may replace the entry of its successor. The journal stops that driver before it writes rows, but the
replaced entry stays. The next start then reads from a wrong position.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.stores.objects import ObjectStore, address

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


def spark_settings(place: Place) -> Mapping[str, str]:
    """Returns the settings of a session whose checkpoint is there; nothing for a folder.

    The address is that of the journal's client, from the environment. S3A finds the login there itself.
    """
    if not isinstance(place, ObjectStore):
        return {}
    endpoint, region = address()
    own_server = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
    }
    return {
        MANAGER: ABORTABLE,
        "spark.hadoop.fs.s3a.endpoint.region": region,
        **(own_server if endpoint else {}),
    }


def refuse_unfit_manager(found: str, place: Place) -> None:
    """Refuses a session that would write an object store's checkpoint by renames.

    Args:
        found: the session's setting MANAGER; empty: not set.
        place: of the checkpoint.

    Raises:
        RefusedStart: the session has another manager.
    """
    if isinstance(place, ObjectStore) and found != ABORTABLE:
        raise RefusedStart(
            f"checkpoint is {str(place)!r}, and {MANAGER} is {found or 'not set'}: Spark would write by renames, which "
            f"an object store lacks. Set it to {ABORTABLE}, and put the jars for S3A on the class path."
        )
