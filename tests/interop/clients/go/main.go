// The franz-go client, doing what tests/interop asks: client COMMAND BOOTSTRAP '{"..."}'.
// Prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

type asked struct {
	Topic      string            `json:"topic"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	Config     map[string]string `json:"config"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent *bool             `json:"idempotent"`
	Records    json.RawMessage   `json:"records"`
	From       int64             `json:"from"`
	Times      []int64           `json:"times"`
	Set        map[string]string `json:"set"`
	Group      string            `json:"group"`
	To         string            `json:"to"`
	ID         string            `json:"id"`
	Flow       int               `json:"flow"`
}

type told map[string]any

func main() {
	var what asked
	must(json.Unmarshal([]byte(os.Args[3]), &what))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	commands := map[string]func(context.Context, asked) told{
		"create": create, "produce": produce, "consume": consume, "lookup": lookup,
		"largest": largest, "settings": settings, "group": group, "administer": administer,
		"transform": transform, "transform-by-sarama": transformBySarama, "member": member,
	}
	answer, err := json.Marshal(commands[os.Args[1]](ctx, what))
	must(err)
	fmt.Println(string(answer))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(more ...kgo.Opt) *kgo.Client {
	if token := os.Getenv("TOKEN"); token != "" {
		more = append(more, kgo.SASL(oauth.Auth{Token: token}.AsMechanism()))
	}
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(os.Args[2])}, more...)...)
	must(err)
	return made
}

func refused(err error) told {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return told{"error": kafka.Code, "message": err.Error(), "kind": kafka.Message}
	}
	return told{"error": 0, "message": err.Error(), "kind": "other"}
}

func create(ctx context.Context, what asked) told {
	config := map[string]*string{}
	for name, value := range what.Config {
		config[name] = kadm.StringPtr(value)
	}
	_, err := kadm.NewClient(client()).CreateTopic(ctx, max(what.Partitions, 1), 1, config, what.Topic)
	must(err)
	return told{}
}

func produce(ctx context.Context, what asked) told {
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[what.Codec]), kgo.ProducerLinger(200 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation(),
	}
	if what.Acks == "1" || (what.Idempotent != nil && !*what.Idempotent) {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	producer := client(options...)
	var rows [][]any
	must(json.Unmarshal(what.Records, &rows))
	answers := make([]told, len(rows))
	done := make(chan struct{}, len(rows))
	for at, row := range rows {
		record := &kgo.Record{
			Topic: what.Topic, Partition: what.Partition,
			Timestamp: time.UnixMilli(int64(row[0].(float64))), Key: text(row[1]), Value: text(row[2]),
		}
		if len(row) > 3 {
			for name, value := range row[3].(map[string]any) {
				record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: text(value)})
			}
		}
		producer.Produce(ctx, record, func(sent *kgo.Record, err error) {
			if err != nil {
				answers[at] = refused(err)
			} else {
				answers[at] = told{"offset": sent.Offset, "timestamp": sent.Timestamp.UnixMilli()}
			}
			done <- struct{}{}
		})
	}
	for range rows {
		<-done
	}
	return told{"records": answers}
}

func consume(ctx context.Context, what asked) told {
	ends, err := kadm.NewClient(client()).ListEndOffsets(ctx, what.Topic)
	must(err)
	end, _ := ends.Lookup(what.Topic, what.Partition)
	consumer := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		what.Topic: {what.Partition: kgo.NewOffset().At(what.From)},
	}))
	rows := []told{}
	for next := what.From; next < end.Offset; {
		fetches := consumer.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			kinds := map[int8]string{0: "CreateTime", 1: "LogAppendTime"}
			headers := map[string]any{}
			for _, header := range record.Headers {
				headers[header.Key] = back(header.Value)
			}
			rows = append(rows, told{
				"offset": record.Offset, "timestamp": record.Timestamp.UnixMilli(),
				"type": kinds[record.Attrs.TimestampType()], "key": back(record.Key), "value": back(record.Value),
				"headers": headers,
			})
			next = record.Offset + 1
		})
	}
	return told{"records": rows}
}

func lookup(ctx context.Context, what asked) told {
	admin := kadm.NewClient(client())
	found := []any{}
	for _, at := range what.Times {
		offsets, err := admin.ListOffsetsAfterMilli(ctx, at, what.Topic)
		must(err)
		one, _ := offsets.Lookup(what.Topic, 0)
		must(one.Err)
		if one.Timestamp == -1 { // franz-go answers the end where there is none
			found = append(found, nil)
		} else {
			found = append(found, []int64{one.Offset, one.Timestamp})
		}
	}
	return told{"found": found}
}

func largest(ctx context.Context, what asked) told {
	offsets, err := kadm.NewClient(client()).ListMaxTimestampOffsets(ctx, what.Topic)
	must(err)
	one, _ := offsets.Lookup(what.Topic, 0)
	must(one.Err)
	return told{"offset": one.Offset, "timestamp": one.Timestamp}
}

func settings(ctx context.Context, what asked) told {
	admin := kadm.NewClient(client())
	changes := []kadm.AlterConfig{}
	for name, value := range what.Set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, what.Topic)
	must(err)
	answer := told{}
	if answers[0].Err != nil {
		answer = refused(answers[0].Err)
		answer["message"] = answers[0].ErrMessage
	}
	described, err := admin.DescribeTopicConfigs(ctx, what.Topic)
	must(err)
	values := map[string]string{}
	for _, entry := range described[0].Configs {
		if _, wanted := what.Set[entry.Key]; wanted {
			values[entry.Key] = entry.MaybeValue()
		}
	}
	answer["values"] = values
	return answer
}

// What is said of a topic before and after it is given partitions, and after it is deleted.
func administer(ctx context.Context, what asked) told {
	admin := kadm.NewClient(client())
	partitions := func() int {
		topics, err := admin.ListTopics(ctx, what.Topic)
		must(err)
		return len(topics[what.Topic].Partitions)
	}
	listed := func() bool { // a new client: one remembers for a while what topics there are
		topics, err := kadm.NewClient(client()).ListTopics(ctx)
		must(err)
		return topics.Has(what.Topic)
	}
	answer := told{"before": partitions()}
	grown, err := admin.UpdatePartitions(ctx, int(what.Partitions), what.Topic)
	must(err)
	must(grown.Error())
	answer["after"], answer["listed"] = partitions(), listed()
	deleted, err := admin.DeleteTopics(ctx, what.Topic)
	must(err)
	must(deleted.Error())
	answer["left"] = listed()
	return answer
}

// A second member joins while the first reads; all is read, and both have partitions in the end.
func group(ctx context.Context, what asked) told {
	wanted, err := strconv.Atoi(string(what.Records))
	must(err)
	member := func() *kgo.Client {
		return client(
			kgo.ConsumerGroup(what.Group), kgo.ConsumeTopics(what.Topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(3*time.Minute),
			kgo.HeartbeatInterval(500*time.Millisecond), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
		)
	}
	seen, distinct := 0, map[string]bool{}
	poll := func(from *kgo.Client) {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		fetches := from.PollRecords(short, 10)
		fetches.EachRecord(func(record *kgo.Record) {
			seen++
			distinct[fmt.Sprint(record.Partition, ":", record.Offset)] = true
		})
		must(from.CommitUncommittedOffsets(ctx))
		from.AllowRebalance()
	}
	first := member()
	for seen == 0 {
		poll(first)
	}
	second := member()
	held := func(of *kgo.Client) []int32 {
		partitions := []int32{}
		for partition := range of.UncommittedOffsets()[what.Topic] {
			partitions = append(partitions, partition)
		}
		for partition := range of.CommittedOffsets()[what.Topic] {
			partitions = append(partitions, partition)
		}
		sort.Slice(partitions, func(a, b int) bool { return partitions[a] < partitions[b] })
		return partitions
	}
	for len(distinct) < wanted || len(held(second)) == 0 {
		if ctx.Err() != nil {
			break
		}
		poll(first)
		poll(second)
	}
	answer := told{"first": held(first), "second": held(second), "records": seen, "distinct": len(distinct)}
	first.Close()
	second.Close()
	committed := map[string]int64{}
	offsets, err := kadm.NewClient(client()).FetchOffsets(ctx, what.Group)
	must(err)
	offsets.Each(func(one kadm.OffsetResponse) { committed[strconv.Itoa(int(one.Partition))] = one.At })
	answer["committed"] = committed
	return answer
}

func text(value any) []byte {
	if value == nil {
		return nil
	}
	return []byte(value.(string))
}

func back(data []byte) any {
	if data == nil {
		return nil
	}
	return strings.ToValidUTF8(string(data), "?")
}
