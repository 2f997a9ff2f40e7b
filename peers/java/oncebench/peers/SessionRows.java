package oncebench.peers;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.Consumer;
import java.util.zip.CRC32;

/**
 * Makes the 20 rows of a session from the values of its events; the rows of pipeline/sessions.py.
 *
 * <p>Not thread-safe: a text and a checksum are used again for each row.
 */
public final class SessionRows {
  public static final int EVENTS = EventCheck.EVENTS_PER_SESSION;
  public static final int MISSING = -1; // no event has this value: values are 0..999999
  private static final int EVENTS_PER_ROW = 5;

  private final StringBuilder text = new StringBuilder();
  private final CRC32 crc = new CRC32();

  /** The values of a session without events. */
  public static int[] noValues() {
    int[] values = new int[EVENTS];
    Arrays.fill(values, MISSING);
    return values;
  }

  /** Passes each row of a finished session on, as JSON in UTF-8. */
  public void each(String key, int[] values, long endedAt, Consumer<byte[]> out) {
    String start = "{\"session_key\":\"" + new String(JsonStringEncoder.getInstance().quoteAsString(key)) + "\",\"j\":";
    for (int first = 0; first < EVENTS; first += EVENTS_PER_ROW) {
      long total = 0;
      text.setLength(0);
      for (int seq = first; seq < first + EVENTS_PER_ROW; seq++) {
        total += values[seq];
        text.append(seq).append('=').append(values[seq]).append(';');
      }
      crc.reset();
      crc.update(text.toString().getBytes(StandardCharsets.ISO_8859_1));
      text.setLength(0);
      text.append(start).append(first / EVENTS_PER_ROW);
      text.append(",\"events\":").append(EVENTS_PER_ROW);
      text.append(",\"total\":").append(total);
      text.append(",\"checksum\":").append(crc.getValue());
      text.append(",\"ended_at\":").append(endedAt).append('}');
      out.accept(text.toString().getBytes(StandardCharsets.UTF_8));
    }
  }

  /** The values of an unfinished session, for quarantine: {"values": {"3": 17, ...}}. */
  public static byte[] held(int[] values) {
    StringBuilder found = new StringBuilder("{\"values\": {");
    String separator = "";
    for (int seq = 0; seq < values.length; seq++) {
      if (values[seq] != MISSING) {
        found.append(separator).append('"').append(seq).append("\": ").append(values[seq]);
        separator = ", ";
      }
    }
    return found.append("}}").toString().getBytes(StandardCharsets.UTF_8);
  }
}
