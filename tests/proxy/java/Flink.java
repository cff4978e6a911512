import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/**
 * A Flink job that reads a topic from its earliest to its latest offset: BOOTSTRAP TOPIC ISOLATION [FAILS_AFTER].
 *
 * Prints a JSON array for each record: partition, offset, timestamp, key, value, headers. With FAILS_AFTER it makes
 * checkpoints, fails once when it has one and has seen more records than that, and also prints which record it went on
 * with.
 */
public final class Flink {
    public static void main(String[] given) throws Exception {
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(given[0])
            .setTopics(given[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setProperty("isolation.level", given[2])
            .setDeserializer(new Rows())
            .build();
        var flink = StreamExecutionEnvironment.createLocalEnvironment(1);
        DataStream<String> rows = flink.fromSource(source, WatermarkStrategy.noWatermarks(), "topic");
        if (given.length > 3) {
            flink.enableCheckpointing(50);
            rows = rows.map(new FailsOnce(Integer.parseInt(given[3])));
        }
        try (var found = rows.executeAndCollect()) {
            found.forEachRemaining(System.out::println);
        }
    }

    static final class Rows implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> to) {
            List<String> headers = new ArrayList<>();
            for (Header each : record.headers()) {
                headers.add("[\"" + each.key() + "\"," + hex(each.value()) + "]");
            }
            to.collect("[" + record.partition() + "," + record.offset() + "," + record.timestamp() + ","
                + hex(record.key()) + "," + hex(record.value()) + "," + headers + "]");
        }

        private static String hex(byte[] data) {
            return data == null ? "null" : '"' + HexFormat.of().formatHex(data) + '"';
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
