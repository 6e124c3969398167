package pequod_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pequod"
)

// retried is how long reads wait for their level where servers are killed.
const retried = 30 * time.Second

func dialCluster(t *testing.T, name string) *pequod.Client {
	t.Helper()
	target := os.Getenv(name)
	if target == "" {
		t.Skip(name + " names no cluster")
	}
	client, err := pequod.Dial(target, nil)
	check(t, err)
	t.Cleanup(client.Close)
	return client
}

// pids returns the processes of the cluster's servers: the second one owns karma.
func pids(t *testing.T) (found []int) {
	t.Helper()
	for text := range strings.SplitSeq(os.Getenv("PEQUOD_PIDS"), ",") {
		pid, err := strconv.Atoi(text)
		check(t, err)
		found = append(found, pid)
	}
	return found
}

// TestClustersLoseServers works with servers beside one database while one of them is stopped, and another one killed.
func TestClustersLoseServers(t *testing.T) {
	client, ctx := dialCluster(t, "PEQUOD_CLUSTER"), within(t)
	servers := pids(t)
	defer func() { _ = syscall.Kill(servers[0], syscall.SIGCONT) }()
	watching, stopAll := context.WithCancel(ctx)
	defer stopAll()
	karma := &copied{ctx: watching, client: client, over: pequod.Range{Prefix: "karma|"}}
	karma.begin(t)
	defer func() { karma.stop() }()
	for round, mishap := range []func() error{
		func() error { return nil },
		func() error { return syscall.Kill(servers[0], syscall.SIGSTOP) },
		func() error {
			return errors.Join(syscall.Kill(servers[0], syscall.SIGCONT), syscall.Kill(servers[1], syscall.SIGKILL))
		},
	} {
		check(t, mishap())
		var workers sync.WaitGroup
		for worker := range 8 {
			workers.Go(func() { work(ctx, t, client, worker, round) })
		}
		workers.Wait()
	}
	for worker := range 8 {
		if sum := latest(ctx, client, fmt.Sprintf("p|%d|sum", worker)); sum != "15" {
			t.Error("worker", worker, "has the sum", sum)
		}
		karma.until(t, fmt.Sprintf("karma|%d", worker), "3")
	}
}

// copied is a copy of a range, which a watch keeps.
type copied struct {
	ctx    context.Context
	client *pequod.Client
	over   pequod.Range
	rows   map[string]string
	next   func() (*pequod.Event, error, bool)
	stop   func()
}

func (c *copied) begin(t *testing.T) {
	c.next, c.stop = iter.Pull2(c.client.Watch(c.ctx, c.over, &pequod.WatchOptions{Rows: true}))
	event, err, _ := c.next()
	check(t, err)
	c.rows = map[string]string{}
	for _, row := range event.Rows {
		c.rows[row.Key] = string(row.Value)
	}
}

// until follows the watch until a row has a value; it begins anew where its server has gone, as a program does.
func (c *copied) until(t *testing.T, key, value string) {
	for c.rows[key] != value {
		event, err, _ := c.next()
		if errors.Is(err, pequod.ReasonWatchCompacted) {
			c.stop()
			c.begin(t)
			continue
		}
		check(t, err)
		for _, change := range event.Changes {
			if string(change.Old) != c.rows[change.Key] {
				t.Errorf("%s was %q, and the watch says %q", change.Key, c.rows[change.Key], change.Old)
			}
			c.rows[change.Key] = string(change.New)
		}
	}
}

// work writes and reads in a session, whose reads show its writes wherever they go.
func work(ctx context.Context, t *testing.T, client *pequod.Client, worker, round int) {
	session := client.Session(pequod.Token{})
	for number := range 5 {
		if _, err := session.Add(ctx, fmt.Sprintf("p|%d|sum", worker), "1"); err != nil {
			t.Error("worker", worker, err)
		}
		sum, err := session.At(pequod.After(session.Token()).Within(retried)).Get(ctx, fmt.Sprintf("p|%d|sum", worker))
		if want := strconv.Itoa(5*round + number + 1); err != nil || string(sum) != want {
			t.Error("worker", worker, "reads", string(sum), "not", want, err)
		}
	}
	batch := &pequod.Batch{}
	vote := fmt.Sprintf("vote|%d|%d", worker, round)
	batch.PutIf(vote, []byte("1"), pequod.IfAbsent, nil)
	for other := range 8 {
		batch.Get(fmt.Sprintf("p|%d|sum", other))
	}
	batch.Get(vote)
	results, err := session.Run(ctx, batch)
	if err != nil || !results[0].Met || string(results[9].Value) != "1" {
		t.Error("worker", worker, "has the results", results, err)
	}
	for _, one := range results {
		if one.Err != nil {
			t.Error("worker", worker, one.Err)
		}
	}
}

func latest(ctx context.Context, client *pequod.Client, key string) string {
	return value(ctx, client.At(pequod.Latest.Within(retried)), key)
}

// TestWritesGoToTheHomesOfTheirKeys works with homes of two groups, one for p and one for s, and computes before them.
func TestWritesGoToTheHomesOfTheirKeys(t *testing.T) {
	client, ctx := dialCluster(t, "PEQUOD_HOMES"), within(t)
	session := client.Session(pequod.Token{})
	check(t, session.MultiPut(ctx, []pequod.Row{{Key: "p|bob|1", Value: []byte("hi")}, {Key: "p|bob|2", Value: []byte("you")}}, nil))
	check(t, session.Put(ctx, "s|ann|bob", []byte("1"), nil))
	err := session.MultiPut(ctx, []pequod.Row{{Key: "p|bob|3"}, {Key: "s|ann|liz"}}, nil)
	if !errors.Is(err, pequod.ReasonMixedWrite) {
		t.Fatal("a put of two groups gives", err)
	}
	if err := session.Put(ctx, "q|1", nil, nil); !errors.Is(err, pequod.ReasonNotHome) {
		t.Fatal("a put of no group gives", err)
	}
	rows, err := session.Rows(ctx, pequod.Range{Prefix: "t|ann|"}, nil)
	check(t, err)
	if len(rows) != 2 || rows[0].Key != "t|ann|1|bob" || string(rows[1].Value) != "you" {
		t.Fatal("the timeline is", rows)
	}
	transaction := &pequod.Transaction{If: []pequod.Compare{pequod.Present("p|bob|1")}}
	transaction.Then.Put("p|bob|3", []byte("again"), nil)
	if held, _, err := session.Transact(ctx, transaction); err != nil || !held {
		t.Fatal("the transaction gives", held, err)
	}
	values, err := session.MultiGet(ctx, "p|bob|3", "s|ann|bob", "p|bob|9")
	check(t, err)
	if string(values[0]) != "again" || string(values[1]) != "1" || values[2] != nil {
		t.Fatal("the values are", values)
	}
	if removed, err := session.RemoveRange(ctx, pequod.Range{}); err != nil || removed != 4 {
		t.Fatal("removed", removed, err)
	}
	if count, err := session.Count(ctx, pequod.Range{Prefix: "t|ann|"}); err != nil || count != 0 {
		t.Fatal("the timeline has", count, err)
	}
}
