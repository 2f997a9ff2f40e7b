package oncebench.flink;

import java.nio.charset.StandardCharsets;
import oncebench.peers.SessionRows;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.api.java.tuple.Tuple7;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The stateful operator: returns a session's 20 rows once its 100 events have arrived; the work of pipeline/sessions.py.
 *
 * <p>The state of a session is one value: finished, last_ms, arrived, ended_at, values. A finished session leaves a
 * tombstone, which an event-time timer removes. A repeated or late event is rejected with its reason.
 *
 * <p>What can go wrong: a session key whose events are in two partitions. Then the first event of a seq to arrive counts,
 * and not the first one by (partition, offset), as in a batch of Spark.
 */
final class Sessions
    extends KeyedProcessFunction<
        String, Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]>, Tuple2<byte[], byte[]>> {
  static final TypeInformation<Tuple2<byte[], byte[]>> ROW = Types.TUPLE(Intake.BYTES, Intake.BYTES);

  private final long timeoutMs;
  private transient ValueState<Tuple5<Boolean, Long, Integer, Long, int[]>> sessions;
  private transient SessionRows rows;

  Sessions(long timeoutMs) {
    this.timeoutMs = timeoutMs;
  }

  @Override
  public void open(OpenContext context) {
    sessions =
        getRuntimeContext()
            .getState(
                new ValueStateDescriptor<>(
                    "session",
                    Types.TUPLE(
                        Types.BOOLEAN,
                        Types.LONG,
                        Types.INT,
                        Types.LONG,
                        PrimitiveArrayTypeInfo.INT_PRIMITIVE_ARRAY_TYPE_INFO)));
    rows = new SessionRows();
  }

  @Override
  public void processElement(
      Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]> event,
      Context context,
      Collector<Tuple2<byte[], byte[]>> out)
      throws Exception {
    Tuple5<Boolean, Long, Integer, Long, int[]> session = sessions.value();
    boolean known = session != null;
    if (!known) {
      session = Tuple5.of(false, 0L, 0, 0L, SessionRows.noValues());
    }
    session.f1 =
        Math.max(session.f1, Math.max(context.timestamp(), context.timerService().currentWatermark()));
    int seq = event.f3;
    if (session.f0 || session.f4[seq] != SessionRows.MISSING) {
      String reason = session.f0 ? "after-end" : "repeated-seq";
      byte[] key = event.f0.getBytes(StandardCharsets.UTF_8);
      context.output(Rejected.TAG, new Rejected(reason, event.f1, event.f2, key, event.f6));
    } else {
      session.f4[seq] = event.f4;
      session.f2++;
      if (seq == SessionRows.EVENTS - 1) {
        session.f3 = event.f5;
      }
      if (session.f2 == SessionRows.EVENTS) {
        rows(event.f0, session.f4, session.f3, out);
        session.f0 = true;
        session.f4 = new int[0];
      }
    }
    if (!known) {
      context.timerService().registerEventTimeTimer(session.f1 + timeoutMs);
    }
    sessions.update(session);
  }

  @Override
  public void onTimer(long timestamp, OnTimerContext context, Collector<Tuple2<byte[], byte[]>> out)
      throws Exception {
    Tuple5<Boolean, Long, Integer, Long, int[]> session = sessions.value();
    if (session == null) {
      return;
    }
    if (session.f1 + timeoutMs > timestamp) {
      context.timerService().registerEventTimeTimer(session.f1 + timeoutMs);
      return;
    }
    sessions.clear();
    if (!session.f0) {
      byte[] key = context.getCurrentKey().getBytes(StandardCharsets.UTF_8);
      context.output(Rejected.TAG, new Rejected("never-ended", -1, -1, key, SessionRows.held(session.f4)));
    }
  }

  private void rows(String key, int[] values, long endedAt, Collector<Tuple2<byte[], byte[]>> out) {
    byte[] keyBytes = key.getBytes(StandardCharsets.UTF_8);
    rows.each(key, values, endedAt, row -> out.collect(Tuple2.of(keyBytes, row)));
  }
}
