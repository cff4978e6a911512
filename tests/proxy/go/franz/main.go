// franz-go: main BOOTSTRAP LEVEL (TOPIC START)...
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"tierstate.test/clients"
)

// perPoll is how many records a member of a group takes at a time.
const perPoll = 100

func main() { clients.Run(read) }

func read(bootstrap string, committed bool, topic string, start clients.Start) {
	client, err := kgo.NewClient(options(bootstrap, committed, topic, start)...)
	clients.Check(err)
	defer client.Close()
	ends := endsOf(client, topic)
	for count, done := 0, false; !done; {
		patience, cancel := context.WithTimeout(context.Background(), clients.Patience)
		fetches := client.PollRecords(patience, perPoll)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) { clients.Check(err) })
		fetches.EachRecord(func(each *kgo.Record) {
			var headers []clients.Header
			for _, header := range each.Headers {
				headers = append(headers, clients.Header{Name: header.Key, Value: header.Value})
			}
			clients.Row(each.Partition, each.Offset, each.Timestamp, each.Key, each.Value, headers)
			count++
			done = ends.Read(each.Partition, each.Offset)
		})
		done = done || start.Records > 0 && count >= start.Records
	}
	if start.Group != "" {
		clients.Check(client.CommitUncommittedOffsets(context.Background()))
	}
}

func options(bootstrap string, committed bool, topic string, start clients.Start) []kgo.Opt {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.FetchIsolationLevel(level)}
	if start.Offsets != nil {
		places := map[int32]kgo.Offset{}
		for partition, offset := range start.Offsets {
			places[partition] = kgo.NoResetOffset().At(offset)
		}
		return append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places}))
	}
	offset := kgo.NewOffset().AtStart()
	if !start.Time.IsZero() {
		offset = kgo.NewOffset().AfterMilli(start.Time.UnixMilli())
	}
	options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(offset))
	if start.Group != "" {
		options = append(options, kgo.ConsumerGroup(start.Group), kgo.DisableAutoCommit())
	}
	return options
}

func endsOf(client *kgo.Client, topic string) clients.Ends {
	metadata := kmsg.NewMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	found, err := metadata.RequestWith(context.Background(), client)
	clients.Check(err)
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for _, each := range found.Topics[0].Partitions {
		latest := kmsg.NewListOffsetsRequestTopicPartition()
		latest.Partition, latest.Timestamp = each.Partition, -1
		asked.Partitions = append(asked.Partitions, latest)
	}
	request := kmsg.NewListOffsetsRequest()
	request.Topics = append(request.Topics, asked)
	ends := clients.Ends{}
	for _, shard := range client.RequestSharded(context.Background(), &request) {
		clients.Check(shard.Err)
		for _, each := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			ends[each.Partition] = each.Offset
		}
	}
	return ends
}
