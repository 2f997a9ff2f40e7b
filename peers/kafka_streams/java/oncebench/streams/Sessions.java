package oncebench.streams;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import oncebench.peers.EventCheck;
import oncebench.peers.RejectedHeaders;
import oncebench.peers.SessionRows;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Checks events, and returns a session's 20 rows once its 100 events have arrived; the work of pipeline/sessions.py.
 *
 * <p>A finished session leaves a tombstone. A repeated or late event is rejected with its reason. Streams has no timer of a
 * key, so a task looks through its store from time to time, and removes what was not seen for the time-out.
 *
 * <p>What can go wrong: a session key whose events are in two partitions. Each partition is a task with a store of its own,
 * so neither of them gets the 100 events.
 */
final class Sessions implements Processor<byte[], byte[], byte[], byte[]> {
  static final String NAME = "sessions", ROWS = "rows", REJECTED = "rejected";

  private final Settings settings;
  private final EventCheck event = new EventCheck();
  private final SessionRows rows = new SessionRows();
  private ProcessorContext<byte[], byte[]> context;
  private KeyValueStore<String, Session> sessions;

  Sessions(Settings settings) {
    this.settings = settings;
  }

  @Override
  public void init(ProcessorContext<byte[], byte[]> context) {
    this.context = context;
    sessions = context.getStateStore(NAME);
    context.schedule(Duration.ofMillis(settings.expiryIntervalMs), PunctuationType.STREAM_TIME, this::expire);
  }

  @Override
  public void process(Record<byte[], byte[]> record) {
    String reason = event.check(record.key(), record.value());
    if (reason == null) {
      reason = advance(record);
    }
    if (reason != null) {
      RecordMetadata from = context.recordMetadata().orElseThrow();
      reject(reason, from.partition(), from.offset(), record);
    }
  }

  /** Adds the checked event to its session; returns the reason to reject it, or null. */
  private String advance(Record<byte[], byte[]> record) {
    Session session = sessions.get(event.sessionKey);
    if (session == null) {
      session = new Session();
    }
    session.lastMs = Math.max(session.lastMs, Math.max(record.timestamp(), watermark(context.currentStreamTimeMs())));
    String reason = null;
    if (session.finished) {
      reason = "after-end";
    } else if (session.values[event.seq] != SessionRows.MISSING) {
      reason = "repeated-seq";
    } else {
      session.values[event.seq] = event.value;
      session.arrived++;
      if (event.seq == SessionRows.EVENTS - 1) {
        session.endedAt = event.scheduledAt;
      }
      if (session.arrived == SessionRows.EVENTS) {
        rows.each(
            event.sessionKey,
            session.values,
            session.endedAt,
            row -> context.forward(new Record<>(record.key(), row, record.timestamp()), ROWS));
        session.finished = true;
        session.values = new int[0];
      }
    }
    sessions.put(event.sessionKey, session);
    return reason;
  }

  private void expire(long streamTimeMs) {
    List<KeyValue<String, Session>> expired = new ArrayList<>();
    try (KeyValueIterator<String, Session> all = sessions.all()) {
      while (all.hasNext()) {
        KeyValue<String, Session> entry = all.next();
        if (entry.value.lastMs + settings.sessionTimeoutMs <= watermark(streamTimeMs)) {
          expired.add(entry);
        }
      }
    }
    for (KeyValue<String, Session> entry : expired) {
      sessions.delete(entry.key);
      if (!entry.value.finished) {
        byte[] key = entry.key.getBytes(StandardCharsets.UTF_8);
        reject("never-ended", -1, -1, new Record<>(key, SessionRows.held(entry.value.values), streamTimeMs));
      }
    }
  }

  private void reject(String reason, int partition, long offset, Record<byte[], byte[]> original) {
    Record<byte[], byte[]> copy = new Record<>(original.key(), original.value(), original.timestamp());
    RejectedHeaders.add(copy.headers(), reason, settings.inputTopic, partition, offset);
    context.forward(copy, REJECTED);
  }

  private long watermark(long streamTimeMs) {
    return streamTimeMs - settings.watermarkDelayMs;
  }
}
