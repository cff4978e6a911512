import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams table of a topic, held in memory: BOOTSTRAP TOPIC APPLICATION STATE_FOLDER ENTRIES KIND.
 *
 * Prints how many records were restored, how many keys the table has, and its digest. The topic is its own changelog:
 * an application that begins again restores from the topic's beginning up to what it had committed. A table of the KIND
 * "global" has no group: it is restored whole each time.
 */
public final class Table {
    public static void main(String[] given) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", given[0]);
        config.put("application.id", given[2]);
        config.put("state.dir", given[3]);
        config.put("topology.optimization", "all");
        config.put("auto.offset.reset", "earliest");
        config.put("commit.interval.ms", "500");
        config.put("num.standby.replicas", "0");

        StreamsBuilder builder = new StreamsBuilder();
        var consumed = Consumed.with(Serdes.String(), Serdes.ByteArray());
        var materialized = Materialized.<String, byte[]>as(Stores.inMemoryKeyValueStore("table"));
        if (given[5].equals("global")) {
            builder.globalTable(given[1], consumed, materialized);
        } else {
            builder.table(given[1], consumed, materialized);
        }
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(config), config)) {
            streams.setGlobalStateRestoreListener(new StateRestoreListener() {
                @Override
                public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
                    System.err.println(partition + " is restored from " + start + " to " + end);
                }

                @Override
                public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

                @Override
                public void onRestoreEnd(TopicPartition partition, String store, long total) {
                    restored.addAndGet(total);
                }
            });
            streams.start();
            long ends = System.currentTimeMillis() + 90_000;
            long wanted = Long.parseLong(given[4]);
            Map<String, byte[]> table = Map.of();
            while (table.size() < wanted && System.currentTimeMillis() < ends) {
                Thread.sleep(200);
                if (streams.state() == KafkaStreams.State.RUNNING) {
                    table = tableOf(streams);
                }
            }
            Thread.sleep(1_500); // what it has is committed
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (Map.Entry<String, byte[]> each : table.entrySet()) {
                digest.update(each.getKey().getBytes(StandardCharsets.UTF_8));
                digest.update(each.getValue());
            }
            System.out.println(restored + " " + table.size() + " " + HexFormat.of().formatHex(digest.digest()));
        }
    }

    private static Map<String, byte[]> tableOf(KafkaStreams streams) {
        Map<String, byte[]> found = new TreeMap<>();
        var store = streams.store(
            StoreQueryParameters.fromNameAndType("table", QueryableStoreTypes.<String, byte[]>keyValueStore()));
        try (var all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, byte[]> each = all.next();
                found.put(each.key, each.value);
            }
        }
        return found;
    }
}
