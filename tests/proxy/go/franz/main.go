// franz-go, from the beginning of a topic: main BOOTSTRAP TOPIC read_committed|read_uncommitted
package main

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"tierstate.test/clients"
)

func main() {
	level := kgo.ReadUncommitted()
	if os.Args[3] == "read_committed" {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(os.Args[2]), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	clients.Check(err)
	defer client.Close()
	for found := true; found; {
		quiet, cancel := context.WithTimeout(context.Background(), clients.Quiet)
		fetches := client.PollFetches(quiet)
		cancel()
		found = fetches.NumRecords() > 0
		if found {
			fetches.EachError(func(_ string, _ int32, err error) { clients.Check(err) })
		}
		fetches.EachRecord(func(each *kgo.Record) {
			var headers []clients.Header
			for _, header := range each.Headers {
				headers = append(headers, clients.Header{Name: header.Key, Value: header.Value})
			}
			clients.Row(each.Partition, each.Offset, each.Timestamp, each.Key, each.Value, headers)
		})
	}
	clients.Done()
}
