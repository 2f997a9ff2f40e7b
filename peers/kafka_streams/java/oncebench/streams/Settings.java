package oncebench.streams;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import oncebench.peers.JobSettings;

/**
 * The settings of one attempt, read from the JSON file that peers/kafka_streams/engine.py writes.
 *
 * <p>Every tuned value is in `streams`, under the name that Kafka gives it. The report of a run prints the same map, so the
 * job adds no setting of its own.
 */
public final class Settings extends JobSettings {
  /** Where the sessions are: `rocksdb` or `memory`. */
  public String state;
  /** How often the job looks for sessions that ended by their time-out, in stream time. */
  public long expiryIntervalMs;
  public Map<String, String> streams;

  static Settings read(Path path) throws IOException {
    return read(path, Settings.class);
  }
}
