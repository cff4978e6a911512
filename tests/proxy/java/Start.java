import java.util.HashMap;
import java.util.Map;

/**
 * Where a client begins: starts.py has its text.
 *
 * Each field is null if the start has no such part. A member of a group ends after `records`; 0 means at the end of the topic.
 */
final class Start {
    final Map<Integer, Long> offsets;
    final Long time;
    final String group;
    final int records;

    Start(String text) {
        String[] words = text.split(":");
        offsets = words[0].equals("offsets") ? offsets(words[1]) : null;
        time = words[0].equals("time") ? Long.valueOf(words[1]) : null;
        group = words[0].equals("group") ? words[1] : null;
        records = group != null && words.length > 2 ? Integer.parseInt(words[2]) : 0;
    }

    private static Map<Integer, Long> offsets(String text) {
        Map<Integer, Long> offsets = new HashMap<>();
        for (String pair : text.split(",")) {
            String[] sides = pair.split("=");
            offsets.put(Integer.valueOf(sides[0]), Long.valueOf(sides[1]));
        }
        return offsets;
    }
}
