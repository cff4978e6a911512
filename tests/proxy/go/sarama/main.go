// sarama: main BOOTSTRAP LEVEL (TOPIC START)...
package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
	"tierstate.test/clients"
)

func main() { clients.Run(read) }

func read(bootstrap string, committed bool, topic string, start clients.Start) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	if committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	client, err := sarama.NewClient([]string{bootstrap}, config)
	clients.Check(err)
	defer client.Close()
	partitions, err := client.Partitions(topic)
	clients.Check(err)
	ends := clients.Ends{}
	for _, partition := range partitions {
		ends[partition], err = client.GetOffset(topic, partition, sarama.OffsetNewest)
		clients.Check(err)
	}
	if start.Group != "" {
		readInGroup(client, topic, start, ends)
		return
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	clients.Check(err)
	for _, partition := range partitions {
		reading, err := consumer.ConsumePartition(topic, partition, first(client, topic, partition, start))
		clients.Check(err)
		readPartition(reading, clients.Ends{partition: ends[partition]})
		clients.Check(reading.Close())
	}
}

func first(client sarama.Client, topic string, partition int32, start clients.Start) int64 {
	if start.Offsets != nil {
		return start.Offsets[partition]
	}
	if !start.Time.IsZero() {
		offset, err := client.GetOffset(topic, partition, start.Time.UnixMilli())
		clients.Check(err)
		return offset
	}
	return sarama.OffsetOldest
}

func readPartition(reading sarama.PartitionConsumer, ends clients.Ends) {
	for {
		select {
		case err := <-reading.Errors():
			check(err)
		case each := <-reading.Messages():
			row(each)
			if ends.Read(each.Partition, each.Offset) {
				return
			}
		case <-time.After(clients.Patience):
			clients.Check(errors.New("no record comes"))
		}
	}
}

// check ends the program, unless sarama reports an error after which it fetches again.
func check(err error) {
	if !errors.Is(err, sarama.ErrKafkaStorageError) {
		clients.Check(err)
	}
}

func row(each *sarama.ConsumerMessage) {
	var headers []clients.Header
	for _, header := range each.Headers {
		headers = append(headers, clients.Header{Name: string(header.Key), Value: header.Value})
	}
	clients.Row(each.Partition, each.Offset, each.Timestamp, each.Key, each.Value, headers)
}
