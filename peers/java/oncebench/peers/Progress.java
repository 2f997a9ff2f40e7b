package oncebench.peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Appends lines to progress.jsonl, which the suite follows; each line is one write.
 *
 * <p>A `position` line has the offsets up to which a completed checkpoint or commit has read and whose rows are
 * committed. It is no batch: these engines have none. `read_us` is when the checkpoint or commit began, so when the source
 * had read up to there.
 */
public final class Progress {
  private Progress() {}

  public static void write(String path, String kind) throws IOException {
    append(path, kind, "");
  }

  public static void position(String path, Map<Integer, Long> ends, long readUs) throws IOException {
    String offsets =
        new TreeMap<>(ends)
            .entrySet().stream()
                .map(end -> "\"" + end.getKey() + "\": " + end.getValue())
                .collect(Collectors.joining(", "));
    append(path, "position", ", \"read_us\": " + readUs + ", \"end_offsets\": {" + offsets + "}");
  }

  public static long nowUs() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }

  private static synchronized void append(String path, String kind, String rest) throws IOException {
    long now = nowUs();
    String line = "{\"kind\": \"" + kind + "\", \"t_us\": " + now + rest + "}\n";
    try (FileChannel file =
        FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
      file.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
    }
  }
}
