import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer, with what releases since 2.8 have: BOOTSTRAP LEVEL (TOPIC START)...
 *
 * An empty array follows the rows of each topic.
 */
public final class Consume {
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] given) {
        var out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (int at = 2; at + 1 < given.length; at += 2) {
            read(given[0], given[1], given[at], new Start(given[at + 1]), out);
            out.println("[]");
        }
        out.flush();
    }

    private static void read(String bootstrap, String level, String topic, Start start, PrintStream out) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("isolation.level", level);
        config.put("auto.offset.reset", start.group == null ? "none" : "earliest");
        config.put("enable.auto.commit", "false");
        config.put("max.poll.records", "100");
        if (start.group != null) {
            config.put("group.id", start.group);
        }
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            for (PartitionInfo each : consumer.partitionsFor(topic)) {
                places.add(new TopicPartition(topic, each.partition()));
            }
            begin(consumer, places, topic, start);
            Map<TopicPartition, Long> left = new HashMap<>(consumer.endOffsets(places));
            int records = 0;
            long ends = System.currentTimeMillis() + PATIENCE_MS;
            while (!left.isEmpty() && (start.records == 0 || records < start.records)) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    out.println(Row.of(each));
                    records++;
                    ends = System.currentTimeMillis() + PATIENCE_MS;
                }
                consumer.assignment().forEach(place -> left.computeIfPresent(
                    place, (same, end) -> consumer.position(place) < end ? end : null));
                if (System.currentTimeMillis() > ends) {
                    throw new IllegalStateException("no record comes, and these are not at their end: " + left);
                }
            }
            if (start.group != null) {
                consumer.commitSync();
            }
        }
    }

    private static void begin(
            KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> places, String topic, Start start) {
        if (start.group != null) {
            consumer.subscribe(List.of(topic));
            return;
        }
        consumer.assign(places);
        if (start.offsets != null) {
            places.forEach(place -> consumer.seek(place, start.offsets.get(place.partition())));
        } else if (start.time != null) {
            var times = places.stream().collect(Collectors.toMap(place -> place, place -> start.time));
            consumer.offsetsForTimes(times).forEach((place, found) -> consumer.seek(place, found.offset()));
        } else {
            consumer.seekToBeginning(places);
        }
    }
}
