// sarama, from the beginning of a topic: main BOOTSTRAP TOPIC read_committed|read_uncommitted
package main

import (
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"tierstate.test/clients"
)

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Return.Errors = true
	if os.Args[3] == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{os.Args[1]}, config)
	clients.Check(err)
	partitions, err := consumer.Partitions(os.Args[2])
	clients.Check(err)
	for _, partition := range partitions {
		reading, err := consumer.ConsumePartition(os.Args[2], partition, sarama.OffsetOldest)
		clients.Check(err)
		read(reading)
		clients.Check(reading.Close())
	}
	clients.Done()
}

func read(reading sarama.PartitionConsumer) {
	for {
		select {
		case err := <-reading.Errors():
			if !errors.Is(err, sarama.ErrKafkaStorageError) { // it tells of it, and asks again
				clients.Check(err)
			}
		case each := <-reading.Messages():
			var headers []clients.Header
			for _, header := range each.Headers {
				headers = append(headers, clients.Header{Name: string(header.Key), Value: header.Value})
			}
			clients.Row(each.Partition, each.Offset, each.Timestamp, each.Key, each.Value, headers)
		case <-time.After(clients.Quiet):
			return
		}
	}
}
