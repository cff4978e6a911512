// kafka-go, from the beginning of a topic: main BOOTSTRAP TOPIC read_committed|read_uncommitted
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

// patience: so long a record below the end of a partition may take.
const patience = 60 * time.Second

func main() {
	level := kafka.ReadUncommitted
	if os.Args[3] == "read_committed" {
		level = kafka.ReadCommitted
	}
	conn, err := kafka.Dial("tcp", os.Args[1])
	clients.Check(err)
	partitions, err := conn.ReadPartitions(os.Args[2])
	clients.Check(err)
	for _, each := range partitions {
		read(each.ID, level)
	}
	clients.Done()
}

// read writes the records of a partition. The reader is not closed, because that takes as long as its last request: its
// MaxWait is the default of 10 seconds.
func read(partition int, level kafka.IsolationLevel) {
	leader, err := kafka.DialLeader(context.Background(), "tcp", os.Args[1], os.Args[2], partition)
	clients.Check(err)
	first, end, err := leader.ReadOffsets()
	clients.Check(err)
	clients.Check(leader.Close())
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Args[1]}, Topic: os.Args[2], Partition: partition, IsolationLevel: level,
		ErrorLogger: kafka.LoggerFunc(func(text string, values ...any) {
			fmt.Fprintf(os.Stderr, text+"\n", values...)
		}),
	})
	clients.Check(reader.SetOffset(first))
	for reader.Offset() < end {
		late, cancel := context.WithTimeout(context.Background(), patience)
		record, err := reader.FetchMessage(late)
		cancel()
		clients.Check(err)
		var headers []clients.Header
		for _, header := range record.Headers {
			headers = append(headers, clients.Header{Name: header.Key, Value: header.Value})
		}
		clients.Row(int32(record.Partition), record.Offset, record.Time, record.Key, record.Value, headers)
	}
	// It takes an empty answer below the high watermark for a broken connection, and connects again.
	if stats := reader.Stats(); stats.Dials != 1 || stats.Errors != 0 {
		clients.Check(errors.New(fmt.Sprint(stats.Dials, " connections, ", stats.Errors, " errors")))
	}
}
