package oncebench.streams;

import java.nio.ByteBuffer;
import oncebench.peers.SessionRows;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;

/** The state of one session. A finished session has no values: it is a tombstone. */
final class Session {
  private static final int FIXED_BYTES = 1 + Long.BYTES + Integer.BYTES + Long.BYTES;

  boolean finished;
  long lastMs;
  int arrived;
  long endedAt;
  int[] values = SessionRows.noValues();

  static Serde<Session> serde() {
    Serializer<Session> write = (topic, session) -> session == null ? null : session.bytes();
    Deserializer<Session> read = (topic, bytes) -> bytes == null ? null : of(ByteBuffer.wrap(bytes));
    return Serdes.serdeFrom(write, read);
  }

  private byte[] bytes() {
    ByteBuffer out = ByteBuffer.allocate(FIXED_BYTES + values.length * Integer.BYTES);
    out.put((byte) (finished ? 1 : 0)).putLong(lastMs).putInt(arrived).putLong(endedAt);
    for (int value : values) {
      out.putInt(value);
    }
    return out.array();
  }

  private static Session of(ByteBuffer in) {
    Session session = new Session();
    session.finished = in.get() == 1;
    session.lastMs = in.getLong();
    session.arrived = in.getInt();
    session.endedAt = in.getLong();
    session.values = new int[in.remaining() / Integer.BYTES];
    for (int seq = 0; seq < session.values.length; seq++) {
      session.values[seq] = in.getInt();
    }
    return session;
  }
}
