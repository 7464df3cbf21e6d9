// franz-go, told what to do by lines of JSON on standard input; ../desk.py has the language.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 60 * time.Second

type security struct {
	Protocol, CA, Mechanism, Username, Password string
}

type record struct {
	Partition *int32      `json:"partition"`
	Offset    int64       `json:"offset"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][]*string `json:"headers"`
	Timestamp *int64      `json:"timestamp"`
}

type order struct {
	ID         int             `json:"id"`
	Op         string          `json:"op"`
	Servers    string          `json:"servers"`
	Security   *security       `json:"security"`
	Topic      string          `json:"topic"`
	Partitions json.RawMessage `json:"partitions"`
	Count      int             `json:"count"`
	Codec      string          `json:"codec"`
	Records    []record        `json:"records"`
	Member     string          `json:"member"`
	Group      string          `json:"group"`
	Strategy   string          `json:"strategy"`
	Instance   string          `json:"instance"`
	Session    int             `json:"session"`
	Heartbeat  int             `json:"heartbeat"`
	Manual     bool            `json:"manual"`
	How        string          `json:"how"`
	Create     bool            `json:"create"`
	Configs    map[string]string
	Key        string     `json:"key"`
	Value      string     `json:"value"`
	Offsets    [][2]int64 `json:"offsets"`
	At         any        `json:"at"`
}

type answer struct {
	ID    int    `json:"id"`
	OK    any    `json:"ok"`
	Error string `json:"error,omitempty"`
}

var (
	lock  sync.Mutex
	seats = map[string]*seat{}
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var given order
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		go serve(&given)
	}
}

func serve(given *order) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	found, err := obey(ctx, given)
	done := answer{ID: given.ID, OK: found}
	if err != nil {
		done.Error = err.Error()
	}
	line, err := json.Marshal(done)
	if err != nil {
		panic(err)
	}
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(line))
}

func obey(ctx context.Context, given *order) (any, error) {
	switch given.Op {
	case "hello":
		return version(), nil
	case "produce":
		return produce(ctx, given)
	case "read":
		return read(ctx, given)
	case "join":
		return nil, join(given)
	case "member":
		return at(given.Member).show(), nil
	case "commit":
		return nil, at(given.Member).commit(ctx, given.How)
	case "leave":
		at(given.Member).leave()
		return nil, nil
	}
	return ask(ctx, given)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return module.Version[1:]
		}
	}
	return "?"
}

func at(member string) *seat {
	lock.Lock()
	defer lock.Unlock()
	return seats[member]
}

func options(given *order) ([]kgo.Opt, error) {
	chosen := []kgo.Opt{kgo.SeedBrokers(given.Servers)}
	if given.Security == nil {
		return chosen, nil
	}
	if given.Security.CA != "" {
		pem, err := os.ReadFile(given.Security.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		chosen = append(chosen, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	}
	user, password := given.Security.Username, given.Security.Password
	switch given.Security.Mechanism {
	case "PLAIN":
		chosen = append(chosen, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return chosen, nil
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(ctx context.Context, given *order) (any, error) {
	chosen, err := options(given)
	if err != nil {
		return nil, err
	}
	if given.Codec != "" {
		chosen = append(chosen, kgo.ProducerBatchCompression(codec(given.Codec)))
	}
	if given.Create {
		chosen = append(chosen, kgo.AllowAutoTopicCreation())
	}
	if len(given.Records) > 0 && given.Records[0].Partition != nil {
		chosen = append(chosen, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(chosen...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil { // else a wrong password is tried again and again
		return nil, err
	}
	records := make([]*kgo.Record, 0, len(given.Records))
	for _, each := range given.Records {
		records = append(records, each.made(given.Topic))
	}
	placed := [][2]int64{}
	for _, done := range client.ProduceSync(ctx, records...) {
		if done.Err != nil {
			return nil, done.Err
		}
	}
	for _, each := range records {
		placed = append(placed, [2]int64{int64(each.Partition), each.Offset})
	}
	return placed, nil
}

func (r record) made(topic string) *kgo.Record {
	made := &kgo.Record{Topic: topic, Key: coded(r.Key), Value: coded(r.Value)}
	if r.Partition != nil {
		made.Partition = *r.Partition
	}
	if r.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*r.Timestamp)
	}
	for _, header := range r.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: *header[0], Value: coded(header[1])})
	}
	return made
}

func coded(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func shown(data []byte) *string {
	if data == nil {
		return nil
	}
	text := string(data)
	return &text
}

func read(ctx context.Context, given *order) (any, error) {
	chosen, err := options(given)
	if err != nil {
		return nil, err
	}
	places := map[int32]kgo.Offset{}
	for number := range count(given) {
		places[int32(number)] = kgo.NewOffset().AtStart()
	}
	chosen = append(chosen, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: places}))
	client, err := kgo.NewClient(chosen...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(found) < given.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records came, then: %w", len(found), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, show(r)) })
	}
	return found, nil
}

func show(r *kgo.Record) record {
	partition, timestamp := r.Partition, r.Timestamp.UnixMilli()
	headers := [][]*string{}
	for _, header := range r.Headers {
		headers = append(headers, []*string{&header.Key, shown(header.Value)})
	}
	return record{&partition, r.Offset, shown(r.Key), shown(r.Value), headers, &timestamp}
}

func count(given *order) int {
	number, err := strconv.Atoi(string(given.Partitions))
	if err != nil {
		panic(err)
	}
	return number
}

func ask(ctx context.Context, given *order) (any, error) {
	chosen, err := options(given)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(chosen...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch given.Op {
	case "create_topic", "delete_topic", "grow_topic", "topics", "partitions",
		"describe_config", "alter_config", "delete_records", "cluster", "log_offsets":
		return askTopics(ctx, admin, given)
	}
	return askGroups(ctx, admin, given)
}

func askTopics(ctx context.Context, admin *kadm.Client, given *order) (any, error) {
	switch given.Op {
	case "create_topic":
		configs := map[string]*string{}
		for key, value := range given.Configs {
			configs[key] = &value
		}
		_, err := admin.CreateTopic(ctx, int32(count(given)), -1, configs, given.Topic)
		return nil, err
	case "delete_topic":
		_, err := admin.DeleteTopic(ctx, given.Topic)
		return nil, err
	case "grow_topic":
		done, err := admin.UpdatePartitions(ctx, given.Count, given.Topic)
		if err == nil {
			err = done[given.Topic].Err
		}
		return nil, err
	case "topics":
		found, err := admin.ListTopics(ctx)
		return found.Names(), err
	case "partitions":
		found, err := admin.ListTopics(ctx, given.Topic)
		return len(found[given.Topic].Partitions), err
	case "describe_config":
		found, err := admin.DescribeTopicConfigs(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		configs := map[string]string{}
		for _, entry := range found[0].Configs {
			configs[entry.Key] = entry.MaybeValue()
		}
		return configs, found[0].Err
	case "alter_config":
		entry := kadm.AlterConfig{Op: kadm.SetConfig, Name: given.Key, Value: &given.Value}
		done, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{entry}, given.Topic)
		if err == nil {
			err = done[0].Err
		}
		return nil, err
	case "delete_records":
		done, err := admin.DeleteRecords(ctx, places(given))
		if err == nil {
			err = done.Error()
		}
		return nil, err
	case "cluster":
		found, err := admin.BrokerMetadata(ctx)
		brokers := []string{}
		for _, broker := range found.Brokers {
			brokers = append(brokers, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
		}
		return map[string]any{"id": found.Cluster, "brokers": brokers}, err
	case "log_offsets":
		return logOffsets(ctx, admin, given)
	}
	return nil, fmt.Errorf("no such order: %s", given.Op)
}

func logOffsets(ctx context.Context, admin *kadm.Client, given *order) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch when := given.At.(type) {
	case string:
		if when == "earliest" {
			listed, err = admin.ListStartOffsets(ctx, given.Topic)
		} else {
			listed, err = admin.ListEndOffsets(ctx, given.Topic)
		}
	case float64:
		listed, err = admin.ListOffsetsAfterMilli(ctx, int64(when), given.Topic)
	}
	found := [][2]int64{}
	listed.Each(func(entry kadm.ListedOffset) {
		found = append(found, [2]int64{int64(entry.Partition), entry.Offset})
	})
	return found, err
}

func places(given *order) kadm.Offsets {
	wanted := kadm.Offsets{}
	for _, pair := range given.Offsets {
		wanted.AddOffset(given.Topic, int32(pair[0]), pair[1], -1)
	}
	return wanted
}

func askGroups(ctx context.Context, admin *kadm.Client, given *order) (any, error) {
	switch given.Op {
	case "groups":
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	case "group":
		found, err := admin.DescribeGroups(ctx, given.Group)
		if err != nil {
			return nil, err
		}
		group := found[given.Group]
		return map[string]any{"state": group.State, "members": len(group.Members)}, group.Err
	case "delete_group":
		_, err := admin.DeleteGroup(ctx, given.Group)
		return nil, err
	case "offsets":
		fetched, err := admin.FetchOffsets(ctx, given.Group)
		found := [][2]int64{}
		fetched.Each(func(entry kadm.OffsetResponse) {
			found = append(found, [2]int64{int64(entry.Partition), entry.At})
		})
		return found, err
	case "alter_offsets":
		return nil, admin.CommitAllOffsets(ctx, given.Group, places(given))
	case "delete_offsets":
		var numbers []int32
		if err := json.Unmarshal(given.Partitions, &numbers); err != nil {
			return nil, err
		}
		wanted := kadm.TopicsSet{}
		wanted.Add(given.Topic, numbers...)
		done, err := admin.DeleteOffsets(ctx, given.Group, wanted)
		if err == nil {
			err = done.Error()
		}
		return nil, err
	}
	return nil, fmt.Errorf("no such order: %s", given.Op)
}

// A seat is a member of a group.
type seat struct {
	client *kgo.Client
	manual bool
	done   chan struct{}
	ended  chan struct{}

	lock       sync.Mutex
	assigned   map[int32]bool
	rebalances int
	handled    [][3]any
	failure    *string
}

func join(given *order) error {
	chosen, err := options(given)
	if err != nil {
		return err
	}
	s := &seat{manual: given.Manual, assigned: map[int32]bool{}}
	s.done, s.ended = make(chan struct{}), make(chan struct{})
	chosen = append(chosen,
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.OnPartitionsAssigned(s.took),
		kgo.OnPartitionsRevoked(s.gave),
		kgo.OnPartitionsLost(s.lost),
	)
	switch given.Strategy {
	case "range":
		chosen = append(chosen, kgo.Balancers(kgo.RangeBalancer()))
	case "roundrobin":
		chosen = append(chosen, kgo.Balancers(kgo.RoundRobinBalancer()))
	case "sticky":
		chosen = append(chosen, kgo.Balancers(kgo.StickyBalancer()))
	case "cooperative-sticky":
		chosen = append(chosen, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if given.Instance != "" {
		chosen = append(chosen, kgo.InstanceID(given.Instance))
	}
	if given.Session != 0 {
		session := time.Duration(given.Session) * time.Millisecond
		chosen = append(chosen, kgo.SessionTimeout(session))
	}
	if given.Heartbeat != 0 {
		between := time.Duration(given.Heartbeat) * time.Millisecond
		chosen = append(chosen, kgo.HeartbeatInterval(between))
	}
	if given.Manual {
		chosen = append(chosen, kgo.DisableAutoCommit())
	}
	s.client, err = kgo.NewClient(chosen...)
	if err != nil {
		return err
	}
	lock.Lock()
	seats[given.Member] = s
	lock.Unlock()
	go s.run()
	return nil
}

func (s *seat) run() {
	defer close(s.ended)
	for {
		select {
		case <-s.done:
			return
		default:
		}
		ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := s.client.PollFetches(ctx)
		stop()
		s.lock.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			s.handled = append(s.handled, [3]any{r.Partition, r.Offset, string(r.Value)})
		})
		fetches.EachError(func(_ string, _ int32, err error) {
			if err != context.DeadlineExceeded {
				text := err.Error()
				s.failure = &text
			}
		})
		s.lock.Unlock()
	}
}

func (s *seat) took(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.rebalances++
	for _, numbers := range topics {
		for _, number := range numbers {
			s.assigned[number] = true
		}
	}
}

// The default commits here when commits are automatic; a callback of one's own must do so itself.
func (s *seat) gave(ctx context.Context, client *kgo.Client, topics map[string][]int32) {
	if s.manual {
		s.lost(ctx, client, topics)
		return
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		text := err.Error()
		s.lock.Lock()
		s.failure = &text
		s.lock.Unlock()
	}
	s.lost(ctx, client, topics)
}

func (s *seat) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, numbers := range topics {
		for _, number := range numbers {
			delete(s.assigned, number)
		}
	}
}

func (s *seat) commit(ctx context.Context, how string) error {
	if how == "sync" {
		return s.client.CommitUncommittedOffsets(ctx)
	}
	done := make(chan error, 1)
	s.client.CommitOffsets(ctx, s.client.UncommittedOffsets(), func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, told *kmsg.OffsetCommitResponse, err error,
	) {
		done <- refused(told, err)
	})
	return <-done
}

func refused(told *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	for _, topic := range told.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *seat) leave() {
	close(s.done)
	<-s.ended
	s.client.Close()
}

func (s *seat) show() any {
	s.lock.Lock()
	defer s.lock.Unlock()
	assigned := []int{}
	for number := range s.assigned {
		assigned = append(assigned, int(number))
	}
	sort.Ints(assigned)
	handled := append([][3]any{}, s.handled...)
	return map[string]any{
		"assigned": assigned, "rebalances": s.rebalances, "handled": handled, "error": s.failure,
	}
}
