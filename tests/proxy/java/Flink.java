import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Flink jobs that read a topic to its latest offset, one after the other: BOOTSTRAP LEVEL FAILS_AFTER (TOPIC START)...
 *
 * Prints a JSON array for each record: partition, offset, timestamp, key, value, headers; and an empty array after each
 * job. FAILS_AFTER is `-` or a number: with a number a job makes checkpoints, fails once when it has one and has seen
 * more records than that, and also prints which record it went on with.
 */
public final class Flink {
    public static void main(String[] given) throws Exception {
        for (int at = 3; at + 1 < given.length; at += 2) {
            read(given[0], given[1], given[2], given[at], new Start(given[at + 1]));
            System.out.println("[]");
        }
    }

    private static void read(String bootstrap, String level, String failsAfter, String topic, Start start) throws Exception {
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(topic)
            .setStartingOffsets(first(topic, start))
            .setBounded(OffsetsInitializer.latest())
            .setProperty("isolation.level", level)
            .setDeserializer(new Rows())
            .build();
        var large = Configuration.fromMap(Map.of("collect-sink.batch-size.max", "32 mb"));
        var flink = StreamExecutionEnvironment.createLocalEnvironment(1, large);
        DataStream<String> rows = flink.fromSource(source, WatermarkStrategy.noWatermarks(), "topic");
        if (!failsAfter.equals("-")) {
            flink.enableCheckpointing(50);
            rows = rows.map(new FailsOnce(Integer.parseInt(failsAfter)));
        }
        try (var found = rows.executeAndCollect()) {
            found.forEachRemaining(System.out::println);
        }
    }

    private static OffsetsInitializer first(String topic, Start start) {
        if (start.offsets != null) {
            Map<TopicPartition, Long> offsets = new HashMap<>();
            start.offsets.forEach((partition, offset) -> offsets.put(new TopicPartition(topic, partition), offset));
            return OffsetsInitializer.offsets(offsets);
        }
        return start.time == null ? OffsetsInitializer.earliest() : OffsetsInitializer.timestamp(start.time);
    }

    static final class Rows implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> to) {
            to.collect(Row.of(record));
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    /** Its place after a failure is in the checkpoint; what it counts is of the program. */
    static final class FailsOnce implements MapFunction<String, String>, CheckpointListener {
        private static int seen;
        private static boolean failed;
        private static boolean wentOn;
        private static volatile boolean kept;
        private final int after;

        FailsOnce(int after) {
            this.after = after;
        }

        @Override
        public String map(String row) throws Exception {
            if (!failed) {
                Thread.sleep(3);
                seen++;
                if (kept) {
                    failed = true;
                    throw new IllegalStateException("it fails once");
                }
            } else if (!wentOn) {
                wentOn = true;
                System.out.println("went on with " + row);
            }
            return row;
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            kept = seen > after;
        }
    }
}
