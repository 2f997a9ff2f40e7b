package oncebench.peers;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.Headers;

/** The headers of a copy in quarantine; the form of oncebench/delivery/copies/headers.py, without those of the original. */
public final class RejectedHeaders {
  private RejectedHeaders() {}

  /** Adds the headers; a position below 0 is that of a session that never ended. */
  public static void add(Headers headers, String reason, String topic, int partition, long offset) {
    headers.add("oncebench.reason", bytes(reason)).add("oncebench.source_topic", bytes(topic));
    if (partition >= 0) {
      headers.add("oncebench.source_partition", bytes(String.valueOf(partition)));
      headers.add("oncebench.source_offset", bytes(String.valueOf(offset)));
      headers.add("oncebench.original", bytes("not read"));
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
