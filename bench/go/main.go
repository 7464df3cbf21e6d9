// Times franz-go's balancers on a case file of bench/case.py.
//
// Usage: franzbench FILE sticky|range|roundrobin|leader LIMIT BUDGET
//
// Prints the same lines as tests/support/java/AssignBench.java. The public API has no call for the placement
// alone: subscriptions are parsed before the clock starts, but the eager sticky balancer reads
// ownership from user data within the call, and every balancer builds the map of its plan. (The
// cooperative one has ownership parsed before, yet is slower: it takes away what moves at the end.)
// "leader" is the cooperative balancer from members' bytes to members' bytes.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	generation = 1
	mostRuns   = 300
)

type plan = map[string]map[string][]int32

type member struct {
	id    string
	class int
}

type step struct {
	name, after, play string
	members           []member
}

type suite struct {
	counts  map[string]int32
	classes [][]string
	steps   []step
}

var (
	running atomic.Pointer[string]
	began   atomic.Int64
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func seconds(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	check(err)
	return value
}

func cpu() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func read(path string) suite {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	words := func() []string {
		if !lines.Scan() {
			check(lines.Err())
			return nil
		}
		return strings.Fields(lines.Text())
	}
	s := suite{counts: make(map[string]int32)}
	var topics []string
	for n := number(words()[1]); n > 0; n-- {
		topic := words()
		topics = append(topics, topic[0])
		s.counts[topic[0]] = int32(number(topic[1]))
	}
	for n := number(words()[1]); n > 0; n-- {
		var class []string
		for _, index := range words() {
			class = append(class, topics[number(index)])
		}
		s.classes = append(s.classes, class)
	}
	for head := words(); head != nil; head = words() {
		next := step{name: head[1], after: head[2], play: head[3]}
		for n := number(head[4]); n > 0; n-- {
			line := words()
			next.members = append(next.members, member{line[0], number(line[1])})
		}
		s.steps = append(s.steps, next)
	}
	return s
}

// watch ends the program when the run under way has used more than limit.
func watch(limit float64) {
	for {
		time.Sleep(50 * time.Millisecond)
		name := running.Load()
		used := (cpu() - time.Duration(began.Load())).Seconds()
		if name != nil && used > limit && running.Load() == name {
			fmt.Printf("over %s %f\n", *name, used)
			os.Exit(0)
		}
	}
}

func balancer(work string) kgo.GroupBalancer {
	switch work {
	case "range":
		return kgo.RangeBalancer()
	case "roundrobin":
		return kgo.RoundRobinBalancer()
	case "leader":
		return kgo.CooperativeStickyBalancer()
	}
	return kgo.StickyBalancer()
}

// joined gives the members as a join response lists them: sorted, each with its metadata bytes.
func (s *suite) joined(b kgo.GroupBalancer, at step, owned plan) []kmsg.JoinGroupResponseMember {
	var members []kmsg.JoinGroupResponseMember
	for _, m := range at.members {
		since := int32(-1)
		if len(owned[m.id]) > 0 {
			since = generation
		}
		listed := kmsg.NewJoinGroupResponseMember()
		listed.MemberID = m.id
		listed.ProtocolMetadata = b.JoinGroupMetadata(s.classes[m.class], owned[m.id], since)
		members = append(members, listed)
	}
	return members
}

func parsed(b kgo.GroupBalancer, members []kmsg.JoinGroupResponseMember) kgo.GroupMemberBalancerOrError {
	balancer, _, err := b.MemberBalancer(members)
	check(err)
	return balancer.(kgo.GroupMemberBalancerOrError)
}

func again(run int, spent, budget float64) bool {
	return run < mostRuns && (spent < budget || run < 3 && spent < 3*budget)
}

func (s *suite) run(at step, work string, owned plan, budget float64) plan {
	var result plan
	asked := make(map[string]int32)
	for _, m := range at.members {
		for _, topic := range s.classes[m.class] {
			asked[topic] = s.counts[topic]
		}
	}
	b := balancer(work)
	members := s.joined(b, at, owned)
	spent := 0.0
	for run := 0; run == 0 || at.play == "timed" && again(run, spent, budget); run++ {
		group := parsed(b, members)
		runtime.GC()
		start := cpu()
		began.Store(int64(start))
		running.Store(&at.name)
		if work == "leader" {
			group = parsed(b, members)
		}
		into, err := group.BalanceOrError(asked)
		if work == "leader" && err == nil {
			into.IntoSyncAssignment()
		}
		running.Store(nil)
		used := (cpu() - start).Seconds()
		check(err)
		spent += used
		if at.play == "timed" {
			fmt.Printf("run %s %f\n", at.name, used)
		}
		result = into.(*kgo.BalancePlan).AsMemberIDMap()
	}
	return result
}

// deal gives each topic in a circle to its subscribers.
func (s *suite) deal(at step) plan {
	result := make(plan)
	subscribers := make(map[string][]string)
	for _, m := range at.members {
		result[m.id] = make(map[string][]int32)
		for _, topic := range s.classes[m.class] {
			subscribers[topic] = append(subscribers[topic], m.id)
		}
	}
	for topic, ids := range subscribers {
		for p := int32(0); p < s.counts[topic]; p++ {
			id := ids[int(p)%len(ids)]
			result[id][topic] = append(result[id][topic], p)
		}
	}
	return result
}

func report(at step, owned, result plan) {
	type partition struct {
		topic  string
		number int32
	}
	here := make(map[string]bool)
	for _, m := range at.members {
		here[m.id] = true
	}
	before := make(map[partition]string)
	for id, topics := range owned {
		for topic, numbers := range topics {
			for _, n := range numbers {
				before[partition{topic, n}] = id
			}
		}
	}
	least, most, moved := 1<<31, 0, 0
	for id, topics := range result {
		load := 0
		for topic, numbers := range topics {
			load += len(numbers)
			for _, n := range numbers {
				if holder := before[partition{topic, n}]; here[holder] && holder != id {
					moved++
				}
			}
		}
		least, most = min(least, load), max(most, load)
	}
	fmt.Printf("result %s %d %d %d\n", at.name, least, most, moved)
}

func main() {
	file, work := os.Args[1], os.Args[2]
	limit, budget := seconds(os.Args[3]), seconds(os.Args[4])
	s := read(file)
	go watch(limit)
	results := make(map[string]plan)
	for _, at := range s.steps {
		if at.play == "dealt" {
			results[at.name] = s.deal(at)
			continue
		}
		owned := results[at.after]
		results[at.name] = s.run(at, work, owned, budget)
		if at.play == "timed" {
			report(at, owned, results[at.name])
		}
	}
}
