package pequod_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"pequod"
	pb "pequod/v1"
)

// until waits until something holds.
func until(ctx context.Context, t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatal("it does not come to pass")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// lost makes a call whose reply is lost after the server has done it: its connection breaks.
func lost(ctx context.Context, t *testing.T, client *pequod.Client, p *proxy, isDone func() bool, call func() error) error {
	t.Helper()
	_, err := client.Get(ctx, "k")
	check(t, err)
	p.mute()
	ended := make(chan error)
	go func() { ended <- call() }()
	until(ctx, t, isDone)
	p.cut(false)
	return <-ended
}

func TestAnAddWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	direct, ctx := dial(t), within(t)
	empty(ctx, t, direct)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	sum := ""
	check(t, lost(ctx, t, client, p, func() bool { return value(ctx, direct, "n") == "5" }, func() (err error) {
		sum, err = client.Add(ctx, "n", "5")
		return err
	}))
	if sum != "5" || value(ctx, direct, "n") != "5" {
		t.Fatal("the sum is", sum, "and the value", value(ctx, direct, "n"))
	}
}

func TestATransactionWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	direct, ctx := dial(t), within(t)
	empty(ctx, t, direct)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	transaction := &pequod.Transaction{If: []pequod.Compare{pequod.Absent("lock")}}
	transaction.Then.Put("lock", []byte("me"), nil)
	held := false
	check(t, lost(ctx, t, client, p, func() bool { return value(ctx, direct, "lock") == "me" }, func() (err error) {
		held, _, err = client.Transact(ctx, transaction)
		return err
	}))
	if !held {
		t.Fatal("it has found its own lock")
	}
}

func TestAnAddOfTheGeneratedStubIsRepeatedIfItHasAnID(t *testing.T) {
	direct, ctx := dial(t), within(t)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	for _, id := range []string{rand.Text()[:16], ""} {
		empty(ctx, t, direct)
		session := client.Session(pequod.Token{})
		err := lost(ctx, t, client, p, func() bool { return value(ctx, direct, "n") == "5" }, func() error {
			request := &pb.AddRequest{Key: []byte("n"), Delta: []byte("5"), RequestId: []byte(id)}
			_, err := pb.NewPequodClient(session).Add(ctx, request)
			return err
		})
		if id != "" && (err != nil || session.Token() == (pequod.Token{})) {
			t.Fatal("with an id: the error is", err, "and the session has seen", session.Token())
		} else if id == "" && !errors.Is(err, pequod.ReasonUnavailable) {
			t.Fatal("without an id: the error is", err)
		}
		if sum := value(ctx, direct, "n"); sum != "5" {
			t.Fatal("the sum is", sum)
		}
	}
}

func TestAPutWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	direct, ctx := dial(t), within(t)
	empty(ctx, t, direct)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	err := lost(ctx, t, client, p, func() bool { return value(ctx, direct, "k") == "1" }, func() error {
		return client.Put(ctx, "k", []byte("1"), nil)
	})
	var e *pequod.Error
	if !errors.As(err, &e) || !errors.Is(err, pequod.ReasonUnavailable) || e.Unapplied {
		t.Fatal("the error is", err)
	}
}

func TestACallThatReachesNobodyIsUnapplied(t *testing.T) {
	ctx := within(t)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), &pequod.Options{Retries: -1})
	p.cut(true)
	for _, err := range []error{client.Put(ctx, "k", nil, nil), client.MultiPut(ctx, []pequod.Row{{Key: "k"}}, nil)} {
		var e *pequod.Error
		if !errors.As(err, &e) || e.Reason != pequod.ReasonUnavailable || !e.Unapplied {
			t.Fatal("the error is", err)
		}
	}
}

func TestAContextEndsACall(t *testing.T) {
	ctx := within(t)
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	_, err := client.Get(ctx, "k")
	check(t, err)
	p.mute()
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := client.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Fatal("the error is", err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := client.Get(late, "k"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, pequod.ReasonDeadlineExceeded) {
		t.Fatal("the error is", err)
	}
}

func TestAWatchGoesOnWithoutAGap(t *testing.T) {
	direct, ctx := dial(t), within(t)
	empty(ctx, t, direct)
	check(t, direct.Put(ctx, "w|0", []byte("0"), nil))
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	next, stop := iter.Pull2(client.Watch(ctx, pequod.Range{Prefix: "w|"}, &pequod.WatchOptions{Rows: true}))
	defer stop()
	event, err, _ := next()
	check(t, err)
	if len(event.Rows) != 1 || event.Rows[0].Key != "w|0" {
		t.Fatal("the rows are", event.Rows)
	}
	p.cut(true)
	for number := 1; number <= 3; number++ {
		check(t, direct.Put(ctx, fmt.Sprintf("w|%d", number), []byte("x"), nil))
	}
	p.open()
	var keys []string
	for len(keys) < 3 {
		event, err, _ := next()
		check(t, err)
		if event.Rows != nil {
			t.Fatal("the rows come again")
		}
		for _, change := range event.Changes {
			keys = append(keys, change.Key)
		}
	}
	if fmt.Sprint(keys) != "[w|1 w|2 w|3]" {
		t.Fatal("the changes are of", keys)
	}
}

func TestAScanGoesOnBehindItsLastRow(t *testing.T) {
	direct, ctx := dial(t), within(t)
	empty(ctx, t, direct)
	rows := make([]pequod.Row, 20000)
	for at := range rows {
		rows[at] = pequod.Row{Key: fmt.Sprintf("s|%05d", at), Value: make([]byte, 1000)}
	}
	for start := 0; start < len(rows); start += 1000 {
		check(t, direct.MultiPut(ctx, rows[start:start+1000], nil))
	}
	p, client := through(t, os.Getenv("PEQUOD_TARGET"), nil)
	at := 0
	for row, err := range client.Scan(ctx, pequod.Range{Prefix: "s|"}, nil) {
		check(t, err)
		if row.Key != rows[at].Key {
			t.Fatal("row", at, "is", row.Key)
		}
		if at++; at == 1 {
			p.cut(false)
		}
	}
	if at != len(rows) {
		t.Fatal("it has", at, "rows")
	}
}

func TestConcurrentUse(t *testing.T) {
	client, ctx := dial(t), within(t)
	empty(ctx, t, client)
	_, err := client.AddJoin(ctx, "karma|<author> = count vote|<author>|<voter>")
	check(t, err)
	seen := make(chan string)
	watching, stop := context.WithCancel(ctx)
	go func() {
		defer close(seen)
		for event, err := range client.Watch(watching, pequod.Range{Prefix: "karma|"}, &pequod.WatchOptions{Rows: true}) {
			if err != nil {
				return
			}
			for _, change := range event.Changes {
				if string(change.New) == "160" {
					seen <- change.Key
				}
			}
		}
	}()
	var workers sync.WaitGroup
	for worker := range 16 {
		workers.Go(func() {
			session := client.Session(pequod.Token{})
			for number := range 10 {
				batch := &pequod.Batch{}
				batch.Put(fmt.Sprintf("vote|ann|%d-%d", worker, number), nil, nil)
				batch.Add("total", "1")
				batch.Get("karma|ann")
				results, err := session.Run(ctx, batch)
				if err != nil || results[2].Err != nil || results[2].Value == nil {
					t.Error("a batch fails:", err, results)
					return
				}
				before := string(results[1].Value)
				if now, err := session.Get(ctx, "total"); err != nil || len(now) < len(before) {
					t.Error("a session goes back from", before, "to", string(now), err)
				}
			}
		})
	}
	workers.Wait()
	if got := value(ctx, client, "total") + " " + value(ctx, client, "karma|ann"); got != "160 160" {
		t.Fatal("the sums are", got)
	}
	if key := <-seen; key != "karma|ann" {
		t.Fatal("the watch has told of", key)
	}
	stop()
	<-seen
}

// TestTLSAndTokensAreWhoTheClientIs has a server that wants certificates, and knows a client by that, or by a token.
func TestTLSAndTokensAreWhoTheClientIs(t *testing.T) {
	target, ctx := os.Getenv("PEQUOD_TLS"), within(t)
	if target == "" {
		t.Skip("PEQUOD_TLS names no server")
	}
	authority, err := os.ReadFile(os.Getenv("PEQUOD_CA"))
	check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(os.Getenv("PEQUOD_CERTIFICATE"), os.Getenv("PEQUOD_KEY"))
	check(t, err)
	mine := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	for _, one := range []struct {
		options pequod.Options
		reason  error
	}{
		{pequod.Options{TLS: mine}, nil},
		{pequod.Options{TLS: mine, Token: "web's"}, nil},
		{pequod.Options{TLS: mine, Token: "nobody's"}, pequod.ReasonUnauthenticated},
		{pequod.Options{TLS: &tls.Config{RootCAs: roots}, Token: "web's", Retries: -1}, pequod.ReasonUnavailable},
		{pequod.Options{TLS: &tls.Config{Certificates: mine.Certificates}, Retries: -1}, pequod.ReasonUnavailable},
		{pequod.Options{Token: "web's", Retries: -1}, pequod.ReasonUnavailable},
	} {
		client, err := pequod.Dial(target, &one.options)
		check(t, err)
		defer client.Close()
		err = client.Put(ctx, "p|1", []byte("x"), nil)
		if one.reason == nil {
			check(t, err)
		} else if !errors.Is(err, one.reason) {
			t.Error("the error is", err, "and not", one.reason)
		}
		if err := client.Put(ctx, "s|1", nil, nil); one.reason == nil && !errors.Is(err, pequod.ReasonPermissionDenied) {
			t.Error("a put without the right gives", err)
		}
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	client := dial(t)
	client.Close()
	if _, err := client.Get(t.Context(), "k"); !errors.Is(err, pequod.ReasonClosed) {
		t.Fatal("the error is", err)
	}
}

func TestTargetsAndTokensAreRefused(t *testing.T) {
	for _, target := range []string{"nonsense", "pequod+cluster://", "pequod+cluster://127.0.0.1:1?zona=eu"} {
		if _, err := pequod.Dial(target, nil); !errors.Is(err, pequod.ReasonSetting) {
			t.Error(target, "gives", err)
		}
	}
	if _, err := pequod.Dial("192.0.2.1:7744", &pequod.Options{Token: "secret"}); !errors.Is(err, pequod.ReasonSetting) {
		t.Error("a token goes over the network in plain text:", err)
	}
	for _, text := range []string{"", "pq1.", "pq1.AQAA", "pq2.AZ86YcIBpbTYAw"} {
		if _, err := pequod.ParseToken(text); !errors.Is(err, pequod.ReasonInvalidToken) {
			t.Errorf("%q gives %v", text, err)
		}
	}
	token, err := pequod.ParseToken("pq1.AZ86YcIBpbTYAw")
	if err != nil || token.String() != "pq1.AZ86YcIBpbTYAw" {
		t.Error(token, err)
	}
}

func value(ctx context.Context, client *pequod.Client, key string) string {
	found, err := client.Get(ctx, key)
	if err != nil {
		return err.Error()
	}
	return string(found)
}
