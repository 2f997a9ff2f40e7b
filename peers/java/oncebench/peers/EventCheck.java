package oncebench.peers;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Checks events: accepts a valid event, or returns the reason to reject it; the checks of pipeline/events.py.
 *
 * <p>Not thread-safe: the fields hold the event that was accepted last.
 */
public final class EventCheck {
  public static final int EVENTS_PER_SESSION = 100;
  private static final int LAST_SEQ = EVENTS_PER_SESSION - 1;
  private static final int MAX_VALUE_BYTES = 65_536;
  private static final int MAX_VALUE = 999_999;
  /** Beyond 2**53 a JSON number no longer survives readers that use doubles. */
  private static final long MAX_SCHEDULED_AT = 1L << 53;
  /** What orjson accepts; Jackson's own limit is 1000. */
  private static final int MAX_DEPTH = 1024;

  private static final JsonFactory JSON =
      JsonFactory.builder()
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(MAX_DEPTH)
                  .maxNumberLength(MAX_VALUE_BYTES)
                  .maxNameLength(MAX_VALUE_BYTES)
                  .build())
          .build();

  private enum Kind { START, ENTRY, END, UNKNOWN }

  public String sessionKey;
  public int seq;
  public int value;
  public long scheduledAt;

  private static final int SESSION_KEY = 1, SEQ = 2, TYPE = 4, VALUE = 8, SCHEDULED_AT = 16, ALL = 31;
  private int present;
  private int right;
  private Kind kind;

  /** Returns the reason to reject the record; null accepts it, and the fields hold its event. */
  public String check(byte[] key, byte[] text) {
    if (key == null) {
      return "null-key";
    }
    if (text == null) {
      return "null-value";
    }
    if (text.length > MAX_VALUE_BYTES) {
      return "too-large";
    }
    try {
      if (!isUtf8Json(text)) {
        return "not-json";
      }
      read(text);
    } catch (IOException error) {
      return "not-json";
    }
    if (present != ALL || (right & ~TYPE) != (ALL & ~TYPE) || !isKey(key)) {
      return "wrong-fields";
    }
    if (kind == Kind.UNKNOWN) {
      return "unknown-type";
    }
    Kind fits = seq == 0 ? Kind.START : seq == LAST_SEQ ? Kind.END : Kind.ENTRY;
    return kind == fits ? null : "wrong-fields";
  }

  /** Jackson would also accept a byte order mark and other encodings. */
  private static boolean isUtf8Json(byte[] text) {
    for (int at = 0; at < Math.min(4, text.length); at++) {
      if (text[at] == 0) {
        return false;
      }
    }
    return text.length > 0 && text[0] != (byte) 0xEF && text[0] != (byte) 0xFE && text[0] != (byte) 0xFF;
  }

  private void read(byte[] text) throws IOException {
    present = right = 0;
    try (JsonParser parser = JSON.createParser(text)) {
      JsonToken first = parser.nextToken();
      if (first == null) {
        throw new IOException("empty");
      }
      if (first == JsonToken.START_OBJECT) {
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
          JsonToken token = parser.nextToken();
          switch (name) {
            case "session_key" -> {
              sessionKey = token == JsonToken.VALUE_STRING ? parser.getText() : null;
              found(SESSION_KEY, sessionKey != null);
            }
            case "type" -> {
              kind = token == JsonToken.VALUE_STRING ? kindOf(parser.getText()) : Kind.UNKNOWN;
              found(TYPE, true);
            }
            case "seq" -> seq = (int) number(parser, token, SEQ, LAST_SEQ);
            case "value" -> value = (int) number(parser, token, VALUE, MAX_VALUE);
            case "scheduled_at" -> scheduledAt = number(parser, token, SCHEDULED_AT, MAX_SCHEDULED_AT);
            default -> { }
          }
          parser.skipChildren();
        }
      } else {
        parser.skipChildren();
        parser.getText();
      }
      if (parser.nextToken() != null) {
        throw new IOException("more than one value");
      }
    }
  }

  private void found(int field, boolean fits) {
    present |= field;
    right = fits ? right | field : right & ~field;
  }

  private long number(JsonParser parser, JsonToken token, int field, long high) throws IOException {
    boolean whole =
        token == JsonToken.VALUE_NUMBER_INT && parser.getNumberType() != JsonParser.NumberType.BIG_INTEGER;
    long found = whole ? parser.getLongValue() : -1;
    found(field, found >= 0 && found <= high);
    return found;
  }

  private static Kind kindOf(String text) {
    return switch (text) {
      case "start_event" -> Kind.START;
      case "entry_event" -> Kind.ENTRY;
      case "end_event" -> Kind.END;
      default -> Kind.UNKNOWN;
    };
  }

  private boolean isKey(byte[] key) {
    String text = new String(key, StandardCharsets.UTF_8);
    // Bytes that are no UTF-8 become U+FFFD.
    return text.equals(sessionKey)
        && (text.indexOf('\uFFFD') < 0 || Arrays.equals(text.getBytes(StandardCharsets.UTF_8), key));
  }
}
