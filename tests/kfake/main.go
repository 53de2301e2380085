// Kfake serves a fake Kafka cluster: many partitions in little time, of which a chosen share moves.
//
// Metadata, settings and consumer groups are those of franz-go's kfake. Offsets come from a table with one row per
// partition instead of from logs: 100,000 partitions take seconds to make, no record is stored, and a test can set any
// row. What the table says of a partition's records: the newest one has the row's newest timestamp, all others are as
// old as the row, or lie at even times.
//
// It prints the bootstrap servers when it is ready. Then it answers each line of standard input with "ok" or "error":
//
//	create TOPIC PARTITIONS                   make a topic; each partition holds three records of now
//	delete TOPIC                              delete it
//	move SHARE                                append a record, now, to this share (0 to 1) of all partitions
//	every SECONDS SHARE                       do so again and again; with a share of 0 no more
//	set TOPIC PARTITION FIRST END NEWEST      set log start, end offset and newest timestamp (ms)
//	past EVERY PHASE OLDEST NEWEST RECORDS    fill each EVERY-th topic with records at even times (ms); PHASE is the first
//	answer TOPIC PARTITION SPEC OFFSET...     answer look-ups of SPEC (-1 LATEST, -2 EARLIEST, -3 MAX_TIMESTAMP) with these
//	                                          offsets in turn, whatever the row says; without offsets, as the row says
//	lead TOPIC PARTITION BROKER               make a broker the leader, with the next leader epoch
//
// It ends when standard input does.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	latest       = -1
	earliest     = -2
	maxTimestamp = -3
	localStart   = -4
	tieredEnd    = -5

	recordsAtFirst = 3
)

// A row is one partition. Timestamps are Unix milliseconds.
type row struct {
	leader     int32
	epoch      int32
	first, end int64
	made       int64
	newest     int64
	even       bool
	instead    map[int64]*turns
}

// Turns are offsets that are answered one after another, again and again.
type turns struct {
	offsets []int64
	next    int
}

// A table answers ListOffsets for the partitions of a cluster.
type table struct {
	cluster *kfake.Cluster
	stop    chan struct{}

	mu     sync.Mutex
	names  []string
	topics map[string][]*row
}

// NewTable starts brokers; they listen on consecutive ports from port on, or on free ones where it is 0.
func newTable(brokers, port int) (*table, error) {
	ports := make([]int, brokers)
	for number := range ports {
		if port > 0 {
			ports[number] = port + number
		}
	}
	cluster, err := kfake.NewCluster(kfake.Ports(ports...))
	if err != nil {
		return nil, err
	}
	t := &table{cluster: cluster, topics: make(map[string][]*row)}
	cluster.ControlKey(int16(kmsg.ListOffsets), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return t.listOffsets(request.(*kmsg.ListOffsetsRequest), cluster.CurrentNode()), nil, true
	})
	return t, nil
}

func (t *table) create(topic string, partitions int) error {
	if err := t.cluster.CreateTopic(topic, int32(partitions), nil); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	rows := make([]*row, partitions)
	for _, info := range t.cluster.PartitionInfos(topic) {
		rows[info.Partition] = &row{
			leader: info.Leader, epoch: info.Epoch, end: recordsAtFirst, made: now, newest: now,
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, topic)
	t.topics[topic] = rows
	return nil
}

func (t *table) delete(topic string) error {
	if err := t.cluster.DeleteTopic(topic); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.topics, topic)
	for at, name := range t.names {
		if name == topic {
			t.names = append(t.names[:at], t.names[at+1:]...)
			break
		}
	}
	return nil
}

// Move appends a record to a share of the partitions: always the same ones, spread evenly.
func (t *table) move(share float64) {
	now := time.Now().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	place := 0
	for _, name := range t.names {
		for _, each := range t.topics[name] {
			place++
			if int(float64(place)*share) > int(float64(place-1)*share) {
				each.end++
				each.newest = now
			}
		}
	}
}

// Every moves a share at an interval, until it is called again; a share of 0 moves nothing.
func (t *table) every(interval time.Duration, share float64) {
	if t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
	if share == 0 {
		return
	}
	stop := make(chan struct{})
	t.stop = stop
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				t.move(share)
			}
		}
	}()
}

// Change lets a function change the row of a partition.
func (t *table) change(topic string, partition int, how func(*row)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows, known := t.topics[topic]
	if !known || partition < 0 || partition >= len(rows) {
		return fmt.Errorf("there is no partition %d of %q", partition, topic)
	}
	how(rows[partition])
	return nil
}

// Past fills each every-th topic, from phase on, with records at even times.
func (t *table) past(every, phase int, oldest, newest, records int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := phase; at < len(t.names); at += every {
		for _, each := range t.topics[t.names[at]] {
			each.first, each.end, each.made, each.newest, each.even = 0, records, oldest, newest, true
		}
	}
}

func (t *table) lead(topic string, partition int, broker int32) error {
	if err := t.cluster.MoveTopicPartition(topic, int32(partition), broker); err != nil {
		return err
	}
	info := t.cluster.PartitionInfo(topic, int32(partition))
	return t.change(topic, partition, func(r *row) { r.leader, r.epoch = info.Leader, info.Epoch })
}

func (t *table) listOffsets(request *kmsg.ListOffsetsRequest, broker int32) *kmsg.ListOffsetsResponse {
	response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, asked := range request.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topic
		rows := t.topics[asked.Topic]
		for _, each := range asked.Partitions {
			answer := kmsg.NewListOffsetsResponseTopicPartition()
			answer.Partition = each.Partition
			if each.Partition < 0 || int(each.Partition) >= len(rows) {
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				rows[each.Partition].answer(&each, broker, &answer)
			}
			topic.Partitions = append(topic.Partitions, answer)
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}

func (r *row) answer(
	asked *kmsg.ListOffsetsRequestTopicPartition, broker int32, answer *kmsg.ListOffsetsResponseTopicPartition,
) {
	switch epoch := asked.CurrentLeaderEpoch; {
	case epoch >= 0 && epoch < r.epoch:
		answer.ErrorCode = kerr.FencedLeaderEpoch.Code
		return
	case epoch > r.epoch:
		answer.ErrorCode = kerr.UnknownLeaderEpoch.Code
		return
	case broker != r.leader:
		answer.ErrorCode = kerr.NotLeaderForPartition.Code
		return
	}
	records := r.end - r.first
	switch spec := asked.Timestamp; {
	case spec == latest:
		answer.Offset = r.end
	case spec == earliest || spec == localStart:
		answer.Offset = r.first
	case spec == tieredEnd:
		return
	case spec < maxTimestamp:
		answer.ErrorCode = kerr.UnsupportedVersion.Code
		return
	case records == 0 || spec > r.newest:
		return
	case spec >= 0 && r.even && records > 1:
		span, gaps := r.newest-r.made, records-1
		place := (max(spec-r.made, 0)*gaps + span - 1) / span
		answer.Offset, answer.Timestamp = r.first+place, r.made+place*span/gaps
	case spec != maxTimestamp && spec <= r.made && records > 1:
		answer.Offset, answer.Timestamp = r.first, r.made
	default:
		answer.Offset, answer.Timestamp = r.end-1, r.newest
	}
	answer.LeaderEpoch = r.epoch
	if instead := r.instead[asked.Timestamp]; instead != nil {
		answer.Offset = instead.offsets[instead.next]
		instead.next = (instead.next + 1) % len(instead.offsets)
	}
}

// InsteadOf has look-ups of a spec answered with other offsets than the row's; with none, with the row's again.
func (r *row) insteadOf(spec int64, offsets []int64) {
	if len(offsets) == 0 {
		delete(r.instead, spec)
		return
	}
	if r.instead == nil {
		r.instead = make(map[int64]*turns)
	}
	r.instead[spec] = &turns{offsets: offsets}
}

// Commit has each group commit an offset in some partitions, one group after another along the table.
func (t *table) commit(groups, partitionsOfGroup int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(t.cluster.ListenAddrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	type place struct {
		topic     string
		partition int32
	}
	var places []place
	for _, name := range t.names {
		for partition := range t.topics[name] {
			places = append(places, place{name, int32(partition)})
		}
	}
	for number := range groups {
		request := kmsg.NewPtrOffsetCommitRequest()
		request.Group = fmt.Sprintf("group-%04d", number)
		for at := range partitionsOfGroup {
			where := places[(number*partitionsOfGroup+at)%len(places)]
			partition := kmsg.NewOffsetCommitRequestTopicPartition()
			partition.Partition = where.partition
			partition.Offset = 1
			if last := len(request.Topics) - 1; last < 0 || request.Topics[last].Topic != where.topic {
				topic := kmsg.NewOffsetCommitRequestTopic()
				topic.Topic = where.topic
				topic.TopicID = t.cluster.TopicInfo(where.topic).TopicID
				request.Topics = append(request.Topics, topic)
			}
			last := &request.Topics[len(request.Topics)-1]
			last.Partitions = append(last.Partitions, partition)
		}
		response, err := request.RequestWith(context.Background(), client)
		if err != nil {
			return err
		}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					return fmt.Errorf("%s: %w", request.Group, err)
				}
			}
		}
	}
	return nil
}

// Obey does what a line says.
func (t *table) obey(line string) error {
	var (
		topic             string
		partition         int
		share, seconds    float64
		broker            int32
		first, end, stamp int64
	)
	command, rest, _ := strings.Cut(line, " ")
	read := func(arguments ...any) error {
		if _, err := fmt.Sscan(rest, arguments...); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		return nil
	}
	switch command {
	case "create":
		if err := read(&topic, &partition); err != nil {
			return err
		}
		return t.create(topic, partition)
	case "delete":
		if err := read(&topic); err != nil {
			return err
		}
		return t.delete(topic)
	case "move":
		if err := read(&share); err != nil {
			return err
		}
		t.move(share)
		return nil
	case "every":
		if err := read(&seconds, &share); err != nil {
			return err
		}
		t.every(time.Duration(seconds*float64(time.Second)), share)
		return nil
	case "set":
		if err := read(&topic, &partition, &first, &end, &stamp); err != nil {
			return err
		}
		return t.change(topic, partition, func(r *row) { r.first, r.end, r.made, r.newest, r.even = first, end, stamp, stamp, false })
	case "past":
		var every, phase int
		var records int64
		if err := read(&every, &phase, &first, &stamp, &records); err != nil {
			return err
		}
		t.past(every, phase, first, stamp, records)
		return nil
	case "answer":
		var spec int64
		if err := read(&topic, &partition, &spec); err != nil {
			return err
		}
		var offsets []int64
		for _, word := range strings.Fields(rest)[3:] {
			offset, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			offsets = append(offsets, offset)
		}
		return t.change(topic, partition, func(r *row) { r.insteadOf(spec, offsets) })
	case "lead":
		if err := read(&topic, &partition, &broker); err != nil {
			return err
		}
		return t.lead(topic, partition, broker)
	}
	return fmt.Errorf("%q: there is no such command", line)
}

func run() error {
	brokers := flag.Int("brokers", 3, "number of brokers")
	port := flag.Int("port", 0, "port of the first broker, the others take the next ones; 0: free ones")
	topics := flag.Int("topics", 0, "number of topics: bench-0000, bench-0001, ...")
	partitions := flag.Int("partitions", 100, "partitions of each topic")
	groups := flag.Int("groups", 0, "number of consumer groups: group-0000, group-0001, ...")
	partitionsOfGroup := flag.Int("group-partitions", 20, "partitions in which each group has committed offset 1")
	flag.Parse()

	t, err := newTable(*brokers, *port)
	if err != nil {
		return err
	}
	for number := range *topics {
		if err := t.create(fmt.Sprintf("bench-%04d", number), *partitions); err != nil {
			return err
		}
	}
	if *groups > 0 {
		if err := t.commit(*groups, *partitionsOfGroup); err != nil {
			return err
		}
	}
	fmt.Println(strings.Join(t.cluster.ListenAddrs(), ","))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := t.obey(lines.Text()); err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println("ok")
		}
	}
	return lines.Err()
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("kfake: ", err)
	}
}
