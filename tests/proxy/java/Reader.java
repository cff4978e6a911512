import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers of partition 0 that read when they are told to: BOOTSTRAP TOPIC OFFSET...
 *
 * A line of the input is how many records each of them reads now; a line for each is the answer: what it read, and where
 * it was told that the log is not the one it had read, or that it is damaged.
 */
public final class Reader {
    public static void main(String[] given) throws Exception {
        TopicPartition place = new TopicPartition(given[1], 0);
        List<KafkaConsumer<byte[], byte[]>> consumers = new ArrayList<>();
        for (int at = 2; at < given.length; at++) {
            Properties config = new Properties();
            config.put("bootstrap.servers", given[0]);
            config.put("auto.offset.reset", "none");
            config.put("enable.auto.commit", "false");
            config.put("max.partition.fetch.bytes", "1");
            config.put("max.poll.records", "1");
            config.put("metadata.max.age.ms", "500");
            var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.assign(List.of(place));
            consumer.seek(place, Long.parseLong(given[at]));
            consumers.add(consumer);
        }
        var told = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = told.readLine()) != null; ) {
            for (var consumer : consumers) {
                System.out.println(read(consumer, place, Integer.parseInt(line)));
            }
            System.out.flush();
        }
    }

    private static String read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place, int records) {
        StringBuilder said = new StringBuilder();
        long ends = System.currentTimeMillis() + 30_000;
        try {
            while (records > 0 && System.currentTimeMillis() < ends) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    said.append(each.offset()).append(':').append(new String(each.value())).append(' ');
                    records--;
                }
            }
            said.append(records > 0 ? "waits" : "");
        } catch (LogTruncationException error) {
            said.append("truncated at ").append(error.offsetOutOfRangePartitions().get(place));
            said.append(" to ").append(error.divergentOffsets().get(place).offset());
            consumer.seek(place, error.divergentOffsets().get(place).offset());
        } catch (OffsetOutOfRangeException error) {
            said.append("out of range at ").append(error.offsetOutOfRangePartitions().get(place));
        } catch (KafkaException error) {
            said.append(error.getMessage().contains("corrupt") ? "damage" : error.toString());
        }
        return said.toString().strip();
    }
}
