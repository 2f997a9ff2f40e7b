package oncebench.flink;

import java.util.Properties;
import oncebench.peers.RejectedHeaders;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The Kafka source and the two Kafka sinks of the job: rows under the guarantee, rejected records at least once. */
final class Topics {
  private Topics() {}

  /** The input from its beginning, without an end: a bounded source never finishes after a restore (FLINK-33466). */
  static KafkaSource<Tuple4<byte[], byte[], Integer, Long>> input(Settings settings) {
    return KafkaSource.<Tuple4<byte[], byte[], Integer, Long>>builder()
        .setBootstrapServers(settings.bootstrapServers)
        .setTopics(settings.inputTopic)
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setProperties(properties(settings.consumer))
        .setDeserializer(new Records())
        .build();
  }

  static KafkaSink<Tuple2<byte[], byte[]>> output(Settings settings) {
    String topic = settings.outputTopic;
    KafkaSinkBuilder<Tuple2<byte[], byte[]>> sink =
        KafkaSink.<Tuple2<byte[], byte[]>>builder()
            .setBootstrapServers(settings.bootstrapServers)
            .setKafkaProducerConfig(properties(settings.producer))
            .setRecordSerializer(
                (KafkaRecordSerializationSchema<Tuple2<byte[], byte[]>>)
                    (row, context, timestamp) -> new ProducerRecord<>(topic, row.f0, row.f1))
            .setDeliveryGuarantee(DeliveryGuarantee.valueOf(settings.guarantee));
    if (settings.guarantee.equals("EXACTLY_ONCE")) {
      sink.setTransactionalIdPrefix(settings.transactionalIdPrefix)
          .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(settings.transactionNaming));
    }
    return sink.build();
  }

  static KafkaSink<Rejected> quarantine(Settings settings) {
    String topic = settings.quarantineTopic, source = settings.inputTopic;
    return KafkaSink.<Rejected>builder()
        .setBootstrapServers(settings.bootstrapServers)
        .setProperty("max.request.size", String.valueOf(8 * 1024 * 1024)) // the topic's max.message.bytes
        .setRecordSerializer(
            (KafkaRecordSerializationSchema<Rejected>) (rejected, context, timestamp) -> copy(rejected, topic, source))
        .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build();
  }

  private static ProducerRecord<byte[], byte[]> copy(Rejected rejected, String topic, String source) {
    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, rejected.key, rejected.value);
    RejectedHeaders.add(record.headers(), rejected.reason, source, rejected.partition, rejected.offset);
    return record;
  }

  private static Properties properties(java.util.Map<String, String> settings) {
    Properties found = new Properties();
    found.putAll(settings);
    return found;
  }

  private static final class Records implements KafkaRecordDeserializationSchema<Tuple4<byte[], byte[], Integer, Long>> {
    @Override
    public void deserialize(
        ConsumerRecord<byte[], byte[]> record, Collector<Tuple4<byte[], byte[], Integer, Long>> out) {
      out.collect(Tuple4.of(record.key(), record.value(), record.partition(), record.offset()));
    }

    @Override
    public TypeInformation<Tuple4<byte[], byte[], Integer, Long>> getProducedType() {
      return Intake.INPUT;
    }
  }
}
