package oncebench.streams;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import oncebench.peers.Progress;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs the pipeline of oncebench on Kafka Streams until SIGTERM: `java oncebench.streams.Job SETTINGS.json`.
 *
 * <p>Input topic -> check -> sessions in the store of the partition's task -> 20 rows per session -> output topic. A start
 * continues from the offsets of the consumer group, with the state of the changelog topic.
 *
 * <p>Exit codes: 0 stopped as requested; 1 failed, and a restart continues.
 */
public final class Job {
  /** Longer than a commit and the close of the stores; the suite kills a process that takes longer. */
  private static final Duration CLOSE_LIMIT = Duration.ofSeconds(20);

  private Job() {}

  public static void main(String[] arguments) throws Exception {
    Settings settings = Settings.read(Path.of(arguments[0]));
    Progress.write(settings.progress, "started");
    try {
      throw run(settings);
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.err.println("stopped: " + rootCause(failure));
      Runtime.getRuntime().halt(1);
    }
  }

  /** Runs until a thread of Streams fails, and returns its failure; SIGTERM ends the process. */
  private static Throwable run(Settings settings) throws InterruptedException {
    Properties properties = new Properties();
    properties.putAll(settings.streams);
    KafkaStreams streams = new KafkaStreams(topology(settings), properties, new ReportingClients(settings.progress));
    BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();
    streams.setUncaughtExceptionHandler(
        error -> {
          failures.add(error);
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT; // the default
        });
    AtomicBoolean ran = new AtomicBoolean();
    streams.setStateListener(
        (state, before) -> {
          if (state == KafkaStreams.State.RUNNING && ran.compareAndSet(false, true)) {
            write(settings.progress, "running");
          }
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(streams)));
    streams.start();
    Throwable failure = failures.take();
    streams.close(CLOSE_LIMIT);
    return failure;
  }

  private static Topology topology(Settings settings) {
    // A record from the future must not expire every session. Streams skips records with a time below 0.
    TimestampExtractor times =
        (record, streamTime) -> Math.max(0, Math.min(record.timestamp(), System.currentTimeMillis()));
    String name = Sessions.NAME;
    StoreBuilder<?> store =
        Stores.keyValueStoreBuilder(
                settings.state.equals("rocksdb")
                    ? Stores.persistentKeyValueStore(name)
                    : Stores.inMemoryKeyValueStore(name),
                Serdes.String(),
                Session.serde())
            .withCachingEnabled(); // as in Streams' own aggregations
    ByteArrayDeserializer read = new ByteArrayDeserializer();
    ByteArraySerializer write = new ByteArraySerializer();
    return new Topology()
        .addSource(AutoOffsetReset.earliest(), "input", times, read, read, settings.inputTopic)
        .addProcessor(name, () -> new Sessions(settings), "input")
        .addStateStore(store, name)
        .addSink(Sessions.ROWS, settings.outputTopic, write, write, name)
        .addSink(Sessions.REJECTED, settings.quarantineTopic, write, write, name);
  }

  private static void stop(KafkaStreams streams) {
    streams.close(CLOSE_LIMIT);
    Runtime.getRuntime().halt(0);
  }

  private static void write(String progress, String kind) {
    try {
      Progress.write(progress, kind);
    } catch (IOException error) {
      throw new UncheckedIOException("progress cannot be written", error);
    }
  }

  private static Throwable rootCause(Throwable error) {
    return error.getCause() == null ? error : rootCause(error.getCause());
  }
}
