package oncebench.flink;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import oncebench.peers.JobSettings;

/**
 * The settings of one attempt, read from the JSON file that peers/flink/engine.py writes.
 *
 * <p>Every tuned value is in `flink`, `consumer` or `producer`, under the name that Flink or Kafka gives it. The report of
 * a run prints the same maps, so the job adds no setting of its own.
 */
public final class Settings extends JobSettings {
  /** A `DeliveryGuarantee` of the connector. */
  public String guarantee;
  public String transactionalIdPrefix;
  /** A `TransactionNamingStrategy` of the connector. */
  public String transactionNaming;
  public String checkpoints;
  public Map<String, String> flink;
  public Map<String, String> consumer;
  public Map<String, String> producer;

  static Settings read(Path path) throws IOException {
    return read(path, Settings.class);
  }
}
