package oncebench.flink;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;

/** Finds the checkpoint from which an attempt continues. */
final class Checkpoints {
  private Checkpoints() {}

  /**
   * Returns the newest completed checkpoint of all attempts.
   *
   * <p>Flink puts `_metadata` in place in one step when a checkpoint has completed. Each attempt continues the numbers of
   * the attempt before it, so the highest number is the newest checkpoint.
   */
  static Optional<Path> newest(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return Optional.empty();
    }
    try (Stream<Path> found = Files.find(folder, 3, (path, type) -> path.endsWith("_metadata"))) {
      return found.map(Path::getParent).max(Comparator.comparingLong(Checkpoints::number));
    }
  }

  private static long number(Path checkpoint) {
    return Long.parseLong(checkpoint.getFileName().toString().replace("chk-", ""));
  }
}
