package oncebench.flink;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import oncebench.peers.EventCheck;
import oncebench.peers.Progress;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple7;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Parses and checks the records of the input, and reports the position of completed checkpoints.
 *
 * <p>Input: key, value, partition, offset. Output: session key, partition, offset, seq, value, scheduled_at, text. The
 * operator is chained to the source, so the input is never serialized and its key and value may be null.
 *
 * <p>A checkpoint's position is reported when the next checkpoint has completed. The sink commits a checkpoint's
 * transaction after that checkpoint has completed, and before it takes part in the next one.
 */
final class Intake
    extends ProcessFunction<
        Tuple4<byte[], byte[], Integer, Long>, Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]>>
    implements CheckpointedFunction, CheckpointListener {
  static final TypeInformation<byte[]> BYTES = TypeInformation.of(byte[].class);
  static final TypeInformation<Tuple4<byte[], byte[], Integer, Long>> INPUT =
      Types.TUPLE(BYTES, BYTES, Types.INT, Types.LONG);
  static final TypeInformation<Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]>> EVENT =
      Types.TUPLE(Types.STRING, Types.INT, Types.LONG, Types.INT, Types.INT, Types.LONG, BYTES);

  private final String progress;
  private transient EventCheck event;
  private transient Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]> accepted;
  private transient ListState<Tuple2<Integer, Long>> kept;
  private transient Map<Integer, Long> ends;
  private transient TreeMap<Long, Position> snapshots;
  private transient Position completed;
  private transient Map<Integer, Long> reported;

  private record Position(Map<Integer, Long> ends, long readUs) {}

  Intake(String progress) {
    this.progress = progress;
  }

  @Override
  public void open(OpenContext context) {
    event = new EventCheck();
    accepted = new Tuple7<>();
  }

  @Override
  public void processElement(
      Tuple4<byte[], byte[], Integer, Long> record,
      Context context,
      Collector<Tuple7<String, Integer, Long, Integer, Integer, Long, byte[]>> out) {
    ends.put(record.f2, record.f3 + 1);
    String reason = event.check(record.f0, record.f1);
    if (reason != null) {
      context.output(Rejected.TAG, new Rejected(reason, record.f2, record.f3, record.f0, record.f1));
      return;
    }
    accepted.f0 = event.sessionKey;
    accepted.f1 = record.f2;
    accepted.f2 = record.f3;
    accepted.f3 = event.seq;
    accepted.f4 = event.value;
    accepted.f5 = event.scheduledAt;
    accepted.f6 = record.f1;
    out.collect(accepted); // serialized at once, by the shuffle
  }

  @Override
  public void initializeState(FunctionInitializationContext context) throws Exception {
    // Every subtask gets every position, because the partitions may be assigned otherwise after a restart.
    kept =
        context
            .getOperatorStateStore()
            .getUnionListState(new ListStateDescriptor<>("position", Types.TUPLE(Types.INT, Types.LONG)));
    ends = new HashMap<>();
    for (Tuple2<Integer, Long> end : kept.get()) {
      ends.merge(end.f0, end.f1, Math::max);
    }
    snapshots = new TreeMap<>();
    completed = new Position(Map.copyOf(ends), Progress.nowUs());
    reported = Map.of();
  }

  @Override
  public void snapshotState(FunctionSnapshotContext context) throws Exception {
    snapshots.put(context.getCheckpointId(), new Position(Map.copyOf(ends), Progress.nowUs()));
    kept.clear();
    for (Map.Entry<Integer, Long> end : ends.entrySet()) {
      kept.add(Tuple2.of(end.getKey(), end.getValue()));
    }
  }

  @Override
  public void notifyCheckpointComplete(long checkpoint) throws Exception {
    if (!completed.ends.equals(reported)) {
      Progress.position(progress, completed.ends, completed.readUs);
      reported = completed.ends;
    }
    completed = snapshots.getOrDefault(checkpoint, completed);
    snapshots.headMap(checkpoint, true).clear();
  }
}
