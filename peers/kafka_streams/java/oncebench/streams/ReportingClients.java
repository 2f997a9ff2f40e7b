package oncebench.streams;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import oncebench.peers.Progress;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.KafkaClientSupplier;

/**
 * Kafka's own clients, which also report the offsets that Streams has committed.
 *
 * <p>Exactly-once commits the offsets in the transaction of the rows, by the producer. At-least-once commits them by the
 * consumer, after the rows were acknowledged. A start reports the offsets from which its tasks continue.
 */
final class ReportingClients implements KafkaClientSupplier {
  private final String progress;

  ReportingClients(String progress) {
    this.progress = progress;
  }

  @Override
  public Admin getAdmin(Map<String, Object> config) {
    return Admin.create(config);
  }

  @Override
  public Producer<byte[], byte[]> getProducer(Map<String, Object> config) {
    return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer()) {
      private Map<TopicPartition, OffsetAndMetadata> inTransaction = Map.of();
      private long readUs;

      @Override
      public void sendOffsetsToTransaction(
          Map<TopicPartition, OffsetAndMetadata> offsets, ConsumerGroupMetadata group) {
        readUs = Progress.nowUs();
        super.sendOffsetsToTransaction(offsets, group);
        inTransaction = Map.copyOf(offsets);
      }

      @Override
      public void commitTransaction() {
        super.commitTransaction();
        report(inTransaction, readUs);
        inTransaction = Map.of();
      }

      @Override
      public void abortTransaction() {
        inTransaction = Map.of();
        super.abortTransaction();
      }
    };
  }

  @Override
  public Consumer<byte[], byte[]> getConsumer(Map<String, Object> config) {
    return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer()) {
      @Override
      public void commitSync(Map<TopicPartition, OffsetAndMetadata> offsets) {
        long readUs = Progress.nowUs();
        super.commitSync(offsets);
        report(offsets, readUs);
      }

      @Override
      public Map<TopicPartition, OffsetAndMetadata> committed(Set<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = super.committed(partitions);
        report(offsets, Progress.nowUs());
        return offsets;
      }
    };
  }

  @Override
  public Consumer<byte[], byte[]> getRestoreConsumer(Map<String, Object> config) {
    return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  @Override
  public Consumer<byte[], byte[]> getGlobalConsumer(Map<String, Object> config) {
    throw new UnsupportedOperationException("the job has no global table");
  }

  private void report(Map<TopicPartition, OffsetAndMetadata> offsets, long readUs) {
    Map<Integer, Long> ends = new HashMap<>();
    offsets.forEach(
        (partition, offset) -> {
          if (offset != null) { // of a partition without a commit
            ends.put(partition.partition(), offset.offset());
          }
        });
    if (ends.isEmpty()) {
      return;
    }
    try {
      Progress.position(progress, ends, readUs);
    } catch (IOException error) {
      throw new UncheckedIOException("progress cannot be written", error);
    }
  }
}
