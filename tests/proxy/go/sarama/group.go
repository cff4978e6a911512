package main

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
	"tierstate.test/clients"
)

// member of a group. Each partition has a goroutine of its own.
type member struct {
	mutex   sync.Mutex
	ends    clients.Ends
	records int // to read; below 1: all
	count   int
	ended   bool
	end     context.CancelFunc
}

func readInGroup(client sarama.Client, topic string, start clients.Start, ends clients.Ends) {
	group, err := sarama.NewConsumerGroupFromClient(start.Group, client)
	clients.Check(err)
	go func() {
		for err := range group.Errors() {
			check(err)
		}
	}()
	reading, end := context.WithTimeout(context.Background(), 2*clients.Patience)
	defer end()
	m := &member{ends: ends, records: start.Records, end: end}
	for !m.ended && reading.Err() == nil {
		clients.Check(group.Consume(reading, []string{topic}, m))
	}
	if !m.ended {
		clients.Check(reading.Err())
	}
	clients.Check(group.Close())
}

func (m *member) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup runs when no goroutine reads any more.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for each := range claim.Messages() {
		if !m.take(session, each) {
			return nil
		}
	}
	return nil
}

// take returns whether another record is to be read.
func (m *member) take(session sarama.ConsumerGroupSession, each *sarama.ConsumerMessage) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.ended {
		return false
	}
	row(each)
	session.MarkMessage(each, "")
	m.count++
	m.ended = m.ends.Read(each.Partition, each.Offset) || m.records > 0 && m.count >= m.records
	if m.ended {
		m.end()
	}
	return !m.ended
}
