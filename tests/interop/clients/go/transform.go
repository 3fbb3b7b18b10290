package main

// Consume, transform, produce with franz-go or sarama: see test_interop_exactly_once_clients.py.
// Ends when its input ends; with 3 where a new producer is needed.

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const most = 50 // records of a transaction

func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func renew(err error) {
	if err != nil {
		fmt.Println("needs a new producer:", err)
		os.Exit(3)
	}
}

func transform(_ context.Context, what asked) told {
	ctx := untilInputEnds()
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[2]),
		kgo.DefaultProduceTopic(what.To),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(what.ID),
		kgo.TransactionTimeout(10 * time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(what.Group),
		kgo.Balancers(kgo.RangeBalancer()), // which all clients know
		kgo.ConsumeTopics(what.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
	}
	if what.Flow == 1 {
		options = append(options, kgo.MaxVersions(kversion.V3_7_0()))
	}
	if os.Getenv("GROUP_PROTOCOL") == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	session, err := kgo.NewGroupTransactSession(options...)
	must(err)
	defer session.Close()
	fmt.Println("started")
	for ctx.Err() == nil {
		fetches := session.PollRecords(ctx, most)
		if fetches.NumRecords() == 0 {
			continue
		}
		renew(session.Begin())
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Key: record.Key, Value: record.Value, Partition: record.Partition}
			session.Produce(context.Background(), copied, failed.Promise())
		})
		committed, err := session.End(context.Background(), failed.Err() == nil)
		renew(err)
		if committed {
			fmt.Println("committed", fetches.NumRecords())
		} else {
			fmt.Println("aborts:", failed.Err())
		}
	}
	return told{}
}

type copier struct {
	what   asked
	config *sarama.Config
}

func (copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (each copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	config := *each.config
	// Each partition has a producer, so that whoever has it next ends its transaction.
	config.Producer.Transaction.ID = fmt.Sprintf("%s-%d", each.what.Group, claim.Partition())
	producer, err := sarama.NewAsyncProducer([]string{os.Args[2]}, &config)
	renew(err)
	defer producer.Close()
	go func() {
		for err := range producer.Errors() {
			fmt.Println("aborts:", err)
		}
	}()
	for {
		var messages []*sarama.ConsumerMessage
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			messages = append(messages, message)
		case <-session.Context().Done():
			return nil
		}
		for more := true; more && len(messages) < most; {
			select {
			case message, open := <-claim.Messages():
				if more = open; open {
					messages = append(messages, message)
				}
			default:
				more = false
			}
		}
		renew(producer.BeginTxn())
		for _, message := range messages {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: each.what.To, Partition: message.Partition,
				Key: sarama.ByteEncoder(message.Key), Value: sarama.ByteEncoder(message.Value),
			}
		}
		renew(producer.AddMessageToTxn(messages[len(messages)-1], each.what.Group, nil))
		renew(producer.CommitTxn())
		fmt.Println("committed", len(messages))
	}
}

func transformBySarama(_ context.Context, what asked) told {
	ctx := untilInputEnds()
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.Timeout = 10 * time.Second
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	group, err := sarama.NewConsumerGroup([]string{os.Args[2]}, what.Group, config)
	must(err)
	defer group.Close()
	fmt.Println("started")
	for ctx.Err() == nil {
		renew(group.Consume(ctx, []string{what.Topic}, copier{what, config}))
	}
	return told{}
}
