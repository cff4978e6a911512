// kafka-go: main BOOTSTRAP LEVEL (TOPIC START)...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"tierstate.test/clients"
)

func main() { clients.Run(read) }

func read(bootstrap string, committed bool, topic string, start clients.Start) {
	config := kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, IsolationLevel: kafka.ReadUncommitted, MaxBytes: 16 << 20,
		ErrorLogger: kafka.LoggerFunc(func(text string, values ...any) {
			fmt.Fprintf(os.Stderr, text+"\n", values...)
		}),
	}
	if committed {
		config.IsolationLevel = kafka.ReadCommitted
	}
	conn, err := kafka.Dial("tcp", bootstrap)
	clients.Check(err)
	partitions, err := conn.ReadPartitions(topic)
	clients.Check(err)
	clients.Check(conn.Close())
	firsts, ends := map[int]int64{}, clients.Ends{}
	for _, each := range partitions {
		leader, err := kafka.DialLeader(context.Background(), "tcp", bootstrap, topic, each.ID)
		clients.Check(err)
		firsts[each.ID], ends[int32(each.ID)], err = leader.ReadOffsets()
		clients.Check(err)
		clients.Check(leader.Close())
	}
	if start.Group != "" {
		readInGroup(config, start, ends)
		return
	}
	for partition, first := range firsts {
		config.Partition = partition
		if start.Offsets != nil {
			first = start.Offsets[int32(partition)]
		}
		readPartition(config, first, start.Time, ends[int32(partition)])
	}
}

// readPartition writes the records of a partition from an offset, or from a time. The reader is not closed, because that
// takes as long as its last request: its MaxWait is the default of 10 seconds.
func readPartition(config kafka.ReaderConfig, first int64, from time.Time, end int64) {
	reader := kafka.NewReader(config)
	if from.IsZero() {
		clients.Check(reader.SetOffset(first))
	} else {
		patience, cancel := context.WithTimeout(context.Background(), clients.Patience)
		clients.Check(reader.SetOffsetAt(patience, from))
		cancel()
	}
	for reader.Offset() < end {
		row(reader)
	}
	// It takes an empty answer below the high watermark for a broken connection, and connects again.
	if stats := reader.Stats(); stats.Dials != 1 || stats.Errors != 0 {
		clients.Check(errors.New(fmt.Sprint(stats.Dials, " connections, ", stats.Errors, " errors")))
	}
}

// readInGroup leaves the group when it closes the reader, so the reader's requests are short.
func readInGroup(config kafka.ReaderConfig, start clients.Start, ends clients.Ends) {
	config.GroupID, config.StartOffset, config.MaxWait = start.Group, kafka.FirstOffset, 500*time.Millisecond
	reader := kafka.NewReader(config)
	last := map[int]kafka.Message{}
	for count, done := 0, false; !done; {
		record := row(reader)
		last[record.Partition] = record
		count++
		done = ends.Read(int32(record.Partition), record.Offset) || start.Records > 0 && count >= start.Records
	}
	for _, record := range last {
		clients.Check(reader.CommitMessages(context.Background(), record))
	}
	clients.Check(reader.Close())
}

func row(reader *kafka.Reader) kafka.Message {
	patience, cancel := context.WithTimeout(context.Background(), clients.Patience)
	record, err := reader.FetchMessage(patience)
	cancel()
	clients.Check(err)
	var headers []clients.Header
	for _, header := range record.Headers {
		headers = append(headers, clients.Header{Name: header.Key, Value: header.Value})
	}
	clients.Row(int32(record.Partition), record.Offset, record.Time, record.Key, record.Value, headers)
	return record
}
