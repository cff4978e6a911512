import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** A record as a JSON array: partition, offset, timestamp, key, value, headers. */
final class Row {
    static String of(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            headers.add("[\"" + each.key() + "\"," + hex(each.value()) + "]");
        }
        return "[" + record.partition() + "," + record.offset() + "," + record.timestamp() + ","
            + hex(record.key()) + "," + hex(record.value()) + "," + headers + "]";
    }

    private static String hex(byte[] data) {
        return data == null ? "null" : '"' + HexFormat.of().formatHex(data) + '"';
    }
}
