package oncebench.flink;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import oncebench.peers.Progress;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs the pipeline of oncebench on Flink, in one process, until SIGTERM: `java oncebench.flink.Job SETTINGS.json`.
 *
 * <p>Kafka source (read_committed) -> parse and check -> sessions keyed by session_key -> 20 rows per session -> Kafka
 * sink. A start continues from the newest completed checkpoint.
 *
 * <p>Exit codes: 0 stopped as requested; 1 failed, and a restart continues.
 */
public final class Job {
  /** Longer than the abort of an open transaction; the suite kills a process that takes longer. */
  private static final long CANCEL_LIMIT_S = 20;

  private Job() {}

  public static void main(String[] arguments) throws Exception {
    Settings settings = Settings.read(Path.of(arguments[0]));
    Progress.write(settings.progress, "started");
    JobClient client = environment(settings).executeAsync("oncebench");
    Progress.write(settings.progress, "running");
    Thread stop = new Thread(() -> cancel(client));
    Runtime.getRuntime().addShutdownHook(stop);
    try {
      client.getJobExecutionResult().get();
    } catch (ExecutionException failure) {
      if (!stop.isAlive()) {
        failure.printStackTrace();
        System.err.println("stopped: " + rootCause(failure));
        Runtime.getRuntime().halt(1);
      }
    }
  }

  private static StreamExecutionEnvironment environment(Settings settings) throws Exception {
    Configuration configuration = Configuration.fromMap(settings.flink);
    Optional<Path> checkpoint = Checkpoints.newest(Path.of(settings.checkpoints));
    checkpoint.ifPresent(path -> configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
    System.err.println("continues from " + checkpoint.map(Path::toString).orElse("the beginning"));
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(configuration);

    // A record from the future must not expire every session.
    WatermarkStrategy<Tuple4<byte[], byte[], Integer, Long>> watermarks =
        WatermarkStrategy.<Tuple4<byte[], byte[], Integer, Long>>forBoundedOutOfOrderness(
                Duration.ofMillis(settings.watermarkDelayMs))
            .withTimestampAssigner((record, timestamp) -> Math.min(timestamp, System.currentTimeMillis()));
    var events =
        flink
            .fromSource(Topics.input(settings), watermarks, "input", Intake.INPUT)
            .uid("input")
            .process(new Intake(settings.progress), Intake.EVENT)
            .uid("intake");
    SingleOutputStreamOperator<Tuple2<byte[], byte[]>> rows =
        events
            .keyBy(event -> event.f0)
            .process(new Sessions(settings.sessionTimeoutMs), Sessions.ROW)
            .uid("sessions");
    rows.sinkTo(Topics.output(settings)).uid("output");
    events
        .getSideOutput(Rejected.TAG)
        .union(rows.getSideOutput(Rejected.TAG))
        .sinkTo(Topics.quarantine(settings))
        .uid("quarantine");
    return flink;
  }

  private static void cancel(JobClient client) {
    try {
      client.cancel().get(CANCEL_LIMIT_S, TimeUnit.SECONDS);
      client.getJobExecutionResult().get(CANCEL_LIMIT_S, TimeUnit.SECONDS);
    } catch (Exception expected) { // the result of a cancelled job is an exception
      System.err.println("cancelled: " + rootCause(expected));
    }
    Runtime.getRuntime().halt(0);
  }

  private static Throwable rootCause(Throwable error) {
    return error.getCause() == null ? error : rootCause(error.getCause());
  }
}
