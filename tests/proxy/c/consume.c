/* librdkafka's own interface: consume BOOTSTRAP LEVEL (TOPIC START)...
 *
 * Writes a JSON array a line: partition, offset, time (ms), key, value, headers; and an empty one after the rows of each
 * topic. starts.py has the text of a start.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdkafka.h>

#define MOST_PARTITIONS 16
#define ANSWER_MS 20000
#define PATIENCE_MS 60000

typedef struct {
        rd_kafka_t *client;
        const char *topic;
        int partitions;
        int64_t ends[MOST_PARTITIONS];
        int64_t next[MOST_PARTITIONS];
} reading_t;

static void fail(const char *format, ...) {
        va_list values;
        va_start(values, format);
        vfprintf(stderr, format, values);
        va_end(values);
        fputc('\n', stderr);
        exit(1);
}

static void check(rd_kafka_resp_err_t error, const char *step) {
        if (error)
                fail("%s: %s", step, rd_kafka_err2str(error));
}

static void print_hex(const void *data, size_t size) {
        static const char digits[] = "0123456789abcdef";
        const unsigned char *bytes = data;
        if (!data) {
                fputs("null", stdout);
                return;
        }
        putchar('"');
        for (size_t at = 0; at < size; at++) {
                putchar(digits[bytes[at] >> 4]);
                putchar(digits[bytes[at] & 15]);
        }
        putchar('"');
}

static void print_row(const rd_kafka_message_t *record) {
        rd_kafka_headers_t *headers;
        printf("[%d, %lld, %lld, ", record->partition, (long long)record->offset,
               (long long)rd_kafka_message_timestamp(record, NULL));
        print_hex(record->key, record->key_len);
        fputs(", ", stdout);
        print_hex(record->payload, record->len);
        fputs(", [", stdout);
        if (!rd_kafka_message_headers(record, &headers)) {
                const char *name;
                const void *value;
                size_t size;
                for (size_t at = 0; !rd_kafka_header_get_all(headers, at, &name, &value, &size); at++) {
                        printf("%s[\"%s\", ", at ? ", " : "", name);
                        print_hex(value, size);
                        putchar(']');
                }
        }
        puts("]]");
}

static rd_kafka_t *client_of(const char *bootstrap, const char *level, const char *group) {
        const char *settings[][2] = {{"bootstrap.servers", bootstrap},
                                     {"isolation.level", level},
                                     {"group.id", group ? group : "unused"},
                                     {"enable.auto.commit", "false"},
                                     {"auto.offset.reset", group ? "earliest" : "error"}};
        char why[512];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        for (size_t at = 0; at < sizeof(settings) / sizeof(*settings); at++)
                if (rd_kafka_conf_set(conf, settings[at][0], settings[at][1], why, sizeof(why)))
                        fail("%s", why);
        rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof(why));
        if (!client)
                fail("%s", why);
        rd_kafka_poll_set_consumer(client);
        return client;
}

static void find_ends(reading_t *reading) {
        const struct rd_kafka_metadata *metadata;
        rd_kafka_topic_t *topic = rd_kafka_topic_new(reading->client, reading->topic, NULL);
        check(rd_kafka_metadata(reading->client, 0, topic, &metadata, ANSWER_MS), "metadata");
        reading->partitions = metadata->topics[0].partition_cnt;
        if (reading->partitions > MOST_PARTITIONS)
                fail("%d partitions are too many", reading->partitions);
        rd_kafka_metadata_destroy(metadata);
        rd_kafka_topic_destroy(topic);
        for (int n = 0; n < reading->partitions; n++) {
                int64_t low;
                check(rd_kafka_query_watermark_offsets(reading->client, reading->topic, n, &low, &reading->ends[n],
                                                       ANSWER_MS),
                      "end offsets");
                reading->next[n] = -1;
        }
}

/* Return a partition's offset in "0=120,1=45". */
static int64_t offset_in(const char *pairs, int partition) {
        for (const char *pair = pairs; pair; pair = strchr(pair, ',') ? strchr(pair, ',') + 1 : NULL) {
                char *rest;
                if (strtol(pair, &rest, 10) == partition && *rest == '=')
                        return strtoll(rest + 1, NULL, 10);
        }
        fail("no offset of partition %d", partition);
        return -1;
}

static void begin(reading_t *reading, const char *start, const char *group) {
        rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(reading->partitions);
        if (group) {
                rd_kafka_topic_partition_list_add(places, reading->topic, RD_KAFKA_PARTITION_UA);
                check(rd_kafka_subscribe(reading->client, places), "subscribe");
        } else {
                int by_time = !strncmp(start, "time:", 5);
                for (int n = 0; n < reading->partitions; n++) {
                        int64_t offset = RD_KAFKA_OFFSET_BEGINNING;
                        if (!strncmp(start, "offsets:", 8))
                                offset = offset_in(start + 8, n);
                        else if (by_time)
                                offset = strtoll(start + 5, NULL, 10);
                        rd_kafka_topic_partition_list_add(places, reading->topic, n)->offset = offset;
                }
                if (by_time)
                        check(rd_kafka_offsets_for_times(reading->client, places, ANSWER_MS), "offsets for times");
                check(rd_kafka_assign(reading->client, places), "assign");
        }
        rd_kafka_topic_partition_list_destroy(places);
}

static int at_end(const reading_t *reading) {
        for (int n = 0; n < reading->partitions; n++)
                if (reading->next[n] < reading->ends[n])
                        return 0;
        return 1;
}

static void commit(const reading_t *reading) {
        rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(reading->partitions);
        for (int n = 0; n < reading->partitions; n++)
                if (reading->next[n] >= 0)
                        rd_kafka_topic_partition_list_add(places, reading->topic, n)->offset = reading->next[n];
        check(rd_kafka_commit(reading->client, places, 0), "commit");
        rd_kafka_topic_partition_list_destroy(places);
}

static void read_topic(const char *bootstrap, const char *level, const char *topic, char *start) {
        char *group = strncmp(start, "group:", 6) ? NULL : start + 6;
        long most = 0;
        if (group && strchr(group, ':')) {
                most = strtol(strchr(group, ':') + 1, NULL, 10);
                *strchr(group, ':') = '\0';
        }
        reading_t reading = {client_of(bootstrap, level, group), topic, 0, {0}, {0}};
        find_ends(&reading);
        begin(&reading, start, group);
        for (long count = 0; !at_end(&reading) && (!most || count < most); count++) {
                rd_kafka_message_t *record = rd_kafka_consumer_poll(reading.client, PATIENCE_MS);
                if (!record)
                        fail("no record comes after %ld", count);
                check(record->err, "poll");
                print_row(record);
                reading.next[record->partition] = record->offset + 1;
                rd_kafka_message_destroy(record);
        }
        if (group)
                commit(&reading);
        check(rd_kafka_consumer_close(reading.client), "close");
        rd_kafka_destroy(reading.client);
        puts("[]");
}

int main(int count, char **arguments) {
        for (int at = 3; at + 1 < count; at += 2)
                read_topic(arguments[1], arguments[2], arguments[at], arguments[at + 1]);
        return fflush(stdout) ? 1 : 0;
}
