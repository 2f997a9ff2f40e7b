package oncebench.peers;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;

/** The settings that an attempt of every engine has, read from the JSON file that peers/java_job.py writes. */
public abstract class JobSettings {
  public String bootstrapServers;
  public String inputTopic;
  public String outputTopic;
  public String quarantineTopic;
  public String progress;
  public long sessionTimeoutMs;
  public long watermarkDelayMs;

  protected static <S extends JobSettings> S read(Path path, Class<S> form) throws IOException {
    return new ObjectMapper().readValue(path.toFile(), form);
  }
}
