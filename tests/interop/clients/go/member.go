package main

// A member of a group that says what it has and reads, as python/member.py does: see
// test_interop_consumer_protocol.py. Ends when its input ends.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var saying sync.Mutex

func say(what, topic string, partition int32, offset int64) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(time.Now().UnixMilli(), what, topic, partition, offset)
}

func sayAll(what string, partitions map[string][]int32) {
	for topic, numbers := range partitions {
		for _, number := range numbers {
			say(what, topic, number, -1)
		}
	}
}

// member reads the topics, or those that fit a pattern that begins with ^. Flow 1 is the classic
// protocol, flow 2 that of consumer groups.
func member(_ context.Context, what asked) told {
	ctx := untilInputEnds()
	options := []kgo.Opt{
		kgo.ConsumerGroup(what.Group),
		kgo.ConsumeTopics(strings.Split(what.Topic, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { sayAll("+", given) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { sayAll("-", gone) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { sayAll("!", lost) }),
	}
	if strings.HasPrefix(what.Topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	if what.ID != "" {
		options = append(options, kgo.InstanceID(what.ID))
	}
	if what.Flow == 2 {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	consumer := client(options...)
	defer consumer.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := consumer.PollRecords(ctx, most)
		fetches.EachRecord(func(record *kgo.Record) { say("r", record.Topic, record.Partition, record.Offset) })
		if fetches.NumRecords() > 0 {
			if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
				fmt.Println("not committed:", err) // with the next
			}
		}
		consumer.AllowRebalance()
	}
	return told{}
}
