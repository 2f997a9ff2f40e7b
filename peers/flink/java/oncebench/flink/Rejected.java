package oncebench.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.util.OutputTag;

/** A rejected record for the quarantine topic; the position is -1 for a session that never ended. */
public final class Rejected {
  static final TypeInformation<Rejected> TYPE = Types.POJO(Rejected.class);
  static final OutputTag<Rejected> TAG = new OutputTag<>("rejected", TYPE);

  public String reason;
  public int partition;
  public long offset;
  public byte[] key;
  public byte[] value;

  public Rejected() {}

  Rejected(String reason, int partition, long offset, byte[] key, byte[] value) {
    this.reason = reason;
    this.partition = partition;
    this.offset = offset;
    this.key = key;
    this.value = value;
  }
}
