import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;

/**
 * An application in a streams group (KIP-1071) that prints what it reads and commits when it ends: BOOTSTRAP TOPIC GROUP.
 *
 * It ends with its standard input.
 */
public final class StreamsGroup {
    public static void main(String[] given) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", given[0]);
        config.put("application.id", given[2]);
        config.put("group.protocol", "streams");
        config.put("auto.offset.reset", "earliest");
        config.put("commit.interval.ms", "3600000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(given[1], Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .foreach((key, value) -> System.out.println(value));
        try (KafkaStreams streams = new KafkaStreams(builder.build(config), config)) {
            streams.start();
            System.in.read();
        }
    }
}
