import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer that reads the first END records of every partition, again and again: BOOTSTRAP TOPIC PARTITIONS END.
 *
 * A line for each round: the SHA-256 of its values, partition by partition; or what is not in order. It ends with its
 * input, between two rounds.
 */
public final class Rounds {
    public static void main(String[] given) throws Exception {
        int partitions = Integer.parseInt(given[2]);
        int end = Integer.parseInt(given[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", given[0]);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        config.put("max.partition.fetch.bytes", "500");
        config.put("metadata.max.age.ms", "500");
        List<TopicPartition> places = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            places.add(new TopicPartition(given[1], number));
        }
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places);
            while (System.in.available() == 0) {
                System.out.println(round(consumer, places, end));
                System.out.flush();
            }
        } catch (RuntimeException error) {
            System.out.println("wrong: " + error);
        }
    }

    private static String round(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> places, int end)
            throws Exception {
        int[] next = new int[places.size()];
        MessageDigest[] digests = new MessageDigest[places.size()];
        for (TopicPartition place : places) {
            consumer.seek(place, 0);
            digests[place.partition()] = MessageDigest.getInstance("SHA-256");
        }
        int left = places.size();
        while (left > 0) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                int number = each.partition();
                if (next[number] == end) {
                    continue;
                }
                if (each.offset() != next[number]) {
                    return "wrong: partition " + number + " offset " + each.offset() + " in place of " + next[number];
                }
                digests[number].update(each.value());
                left -= ++next[number] == end ? 1 : 0;
            }
        }
        StringBuilder said = new StringBuilder();
        for (MessageDigest digest : digests) {
            said.append(HexFormat.of().formatHex(digest.digest())).append(' ');
        }
        return said.toString().strip();
    }
}
